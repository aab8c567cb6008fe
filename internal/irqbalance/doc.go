// Package irqbalance talks to the irqbalance daemon over its socket: it asks the daemon to
// leave a set of interrupts alone, and takes that back. The daemon is never stopped,
// restarted or reconfigured.
//
// The protocol is that of the daemon's own user interface (irqbalance.c, sock_handle). A
// client connects, sends one command with its credentials attached, gets at most one
// answer, and the daemon closes. What a client must know, by version:
//
//   - "settings ban irqs N N ..." replaces the list of banned interrupts, so that whoever
//     wants to add to it has to read it first. The numbers end at the first 0, unless that
//     is the first number; NONE empties the list. The list is the one of --banirq; what
//     --banmod or a policy script bans is elsewhere, not shown, and not lost.
//   - "setup" tells the list. From 1.3.0 to 1.6.0 it corrupts the daemon's memory when the
//     list is not empty (1.6.0 was seen to end with SIGSEGV), and before that writes past the
//     end of a buffer: those versions are not asked (the fix is in 1.7.0). The only list of theirs that can be known is the
//     one on their command line.
//   - A command is read once, into 500 bytes before 1.9.5 and into 16384 since. Before
//     1.9.5 the rest is dropped silently, and a number cut in two bans another interrupt;
//     since then a command that fills the buffer is refused, silently as well.
//   - Before 1.9.0 the daemon parses numbers beyond the end of the command. A NUL at the
//     end of each command ends that, and does no harm to later ones.
//   - A connection that is closed without a command is taken for whatever command the
//     buffer still holds, with the length of none. So every connection that is made is used.
//   - An answer to a client that is gone ends the daemon (seen with 1.9.2 and 1.9.5): it does
//     not ignore SIGPIPE, unless whoever started it does, as systemd does for its services.
//     So a connection whose answer is late is kept open until the answer comes, and a
//     process waits for it before it ends (Keeper.Wait).
//   - A new list counts from the daemon's next scan on, at once where it is read back.
//     Before 1.9.4 the daemon then sleeps for one interval (10 s, or --interval) and
//     answers nobody meanwhile. Each change makes it place all its interrupts anew: a list
//     that is right already is not sent.
//   - Versions before 1.5 have their socket in the abstract namespace, as irqbalancePID.sock;
//     1.5 in /run, later ones in /run/irqbalance. One that cannot make its file falls back
//     to an abstract name that is all NULs. A distribution may have built the socket out.
package irqbalance
