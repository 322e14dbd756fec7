package lock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockOffset lies far behind the file's text: on Windows a locked range cannot
// be read by others, and they shall read the owner's process id.
const lockOffset = 1 << 30

// tryLock takes the lock or returns errHeld; it does not wait.
func tryLock(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &windows.Overlapped{Offset: lockOffset})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errHeld
	}
	return err
}
