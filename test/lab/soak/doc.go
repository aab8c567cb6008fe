// Package soak is a test alone: thousands of random events against rdmatune reconcile on a
// machine of the lab, and after each a model of what must hold. It runs inside the machine,
// beside the daemon; test/lab builds it and brings it there.
package soak
