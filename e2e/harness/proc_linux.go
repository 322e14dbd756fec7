package harness

import "syscall"

// childAttr makes the kernel end the daemon when the test process dies in a way that leaves no time for it.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
