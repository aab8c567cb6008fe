// Package audit finds out what the communication libraries of a process really read:
// for each variable what the environment and the configuration files say, which of
// them wins by that library's own precedence, and the number that the library's own
// parser makes of it. The precedences and parsers are those of the libraries' source;
// they differ from each other, which is the point.
//
// A running process is seen as it was started: what it has changed in its environment
// since (setenv, os.environ) is in its own memory and not observable. Modules that are
// known to do so are named.
package audit
