// Package fence holds the import rules of the module; its test is the rule.
package fence
