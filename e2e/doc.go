// Package e2e proves happyd from the outside: its tests build the real binary, run it with a home of its own, write agents' logs
// under it as agents do, and read back what the server holds, with the account's keys. Nothing of the daemon runs inside the
// test process, so a kill is a kill.
//
// The package exports nothing. The folders below it hold what the tests share: harness (a machine with a daemon and a server),
// cases (a small language for inputs and expected streams), loggen (agents that write logs).
//
// Longer runs are behind environment variables, see the Makefile: HAPPYD_KILLS (number of kills), HAPPYD_SOAK=1, HAPPYD_IDLE
// (seconds). HAPPYD_BIN names a binary to test instead of a fresh build, HAPPYD_RACE=1 builds the daemon with the race detector,
// HAPPYD_KEEP=1 keeps the machines of failed tests.
package e2e
