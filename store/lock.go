package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// lockPatience bridges the moment in which a killed or ending predecessor is
// still being torn down by the kernel. It is no takeover: a living holder,
// stopped or not, keeps the lock.
const lockPatience = 500 * time.Millisecond

// errHeld is what tryLock returns when another process has the lock.
var errHeld = errors.New("lock is held")

// fileLock is an OS lock on an open file; the kernel drops it with the process.
type fileLock struct{ f *os.File }

// acquire takes the lock file's OS lock and writes our pid into the file. What
// the file said before plays no part: a leftover pid locks nobody out.
func acquire(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock file: %w", err)
	}
	deadline := time.Now().Add(lockPatience)
	for {
		err = tryLock(f)
		if !errors.Is(err, errHeld) || time.Now().After(deadline) {
			break
		}
		time.Sleep(25 * time.Millisecond)
	}
	if errors.Is(err, errHeld) {
		err = fmt.Errorf("%w: %s is held by %s", ErrLocked, path, holder(f))
	} else if err != nil {
		err = fmt.Errorf("locking %s: %w", path, err)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	// Information only, so a full disk does not keep us from starting here.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &fileLock{f}, nil
}

func holder(f *os.File) string {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	pid, perr := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil || perr != nil || pid <= 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d", pid)
}

// release drops the lock. The file stays: removing it would let two processes
// lock two different files of one name.
func (l *fileLock) release() { _ = l.f.Close() }
