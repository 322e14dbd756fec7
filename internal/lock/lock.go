// Package lock keeps two daemons from mirroring one agent's home for one
// account at the same time.
//
// In flows what is to be held (an agent's home directory and an account), out
// flows a [Lock] for the life of the process. The lock is the operating
// system's own (flock, LockFileEx): it ends with the process, however that
// ends, so there is nothing stale to clean up. The process id in the file is
// information for people and never decides anything.
//
// The package never deletes a lock file: between an unlink and the next open
// two processes could each hold "the" lock. It never writes to an agent's home.
package lock

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// errHeld is what the platform's code returns when another process holds the lock.
var errHeld = errors.New("held by another process")

// HeldError says that another process holds the lock.
type HeldError struct {
	Home string // the agent's home directory
	PID  int    // the holder, as it wrote itself; 0 if unknown
}

func (e *HeldError) Error() string {
	who := "another happyd"
	if e.PID > 0 {
		who = fmt.Sprintf("another happyd (process %d)", e.PID)
	}
	return fmt.Sprintf("%s already mirrors %s for this account", who, e.Home)
}

// Lock is a held lock. It is released by Close or by the end of the process.
type Lock struct{ file *os.File }

// owner is what the lock file tells a person who looks at it.
type owner struct {
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
}

// Acquire takes the lock for mirroring an agent's home directory (which need
// not exist yet) for an account, whose name may be anything that identifies it.
// dir is where lock files lie; it must be the same for all daemons of a user.
// If another process has the lock, the error is a [*HeldError] at once.
func Acquire(dir, home, account string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the lock directory: %w", err)
	}
	path := filepath.Join(dir, name(home, account))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	switch err := tryLock(f); {
	case errors.Is(err, errHeld):
		held := &HeldError{Home: home, PID: readPID(f)}
		f.Close()
		return nil, held
	case err != nil:
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	// A note that could not be written costs only the process id in a message.
	_ = writeOwner(f)
	return &Lock{file: f}, nil
}

// Close releases the lock.
func (l *Lock) Close() error {
	// Emptied first, so that nobody reads the id of a process that let go.
	return errors.Join(l.file.Truncate(0), l.file.Close())
}

// name hashes what is locked: neither paths nor accounts appear in file names.
func name(home, account string) string {
	sum := sha256.Sum256([]byte(resolve(home) + "\x00" + account))
	return "bridge-" + hex.EncodeToString(sum[:8]) + ".lock"
}

// resolve gives one name to a directory that is reached by several. Of a
// directory that does not exist yet, the part that exists is resolved.
func resolve(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	rest := ""
	for p := path; ; p = filepath.Dir(p) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(real, rest)
		}
		if p == filepath.Dir(p) {
			return path
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}

func writeOwner(f *os.File) error {
	data, err := json.Marshal(owner{PID: os.Getpid(), Since: time.Now().UTC()})
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(data, '\n'), 0)
	return err
}

func readPID(f *os.File) int {
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	if err != nil {
		return 0
	}
	var o owner
	if json.Unmarshal(data, &o) != nil {
		return 0
	}
	return o.PID
}
