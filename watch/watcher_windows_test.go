package watch

import "syscall"

var errNoSpace error = syscall.ENOSPC
