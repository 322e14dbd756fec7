// Package harness runs the real happyd binary for tests: a Machine is a temporary home with a configuration and a daemon as a
// child process that can be stopped, killed and started again; a Server is where it delivers to; Streams opens what the server
// holds with the account's secret.
//
// It ends only processes that it started, listens and dials on 127.0.0.1 only, and keeps everything below one temporary
// directory. It is never part of the daemon.
package harness
