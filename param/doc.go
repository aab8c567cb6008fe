// Package param is the vocabulary that every other package of rdmatune shares:
// what can be tuned (Kind, ID, Target), what it has (Setting, Value), what is to
// become of it (Change, Order), and Table, the one place that knows the facts of
// each parameter. It is a leaf: it imports the standard library only and does no
// input or output.
package param
