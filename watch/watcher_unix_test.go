//go:build unix

package watch

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

var errNoSpace error = unix.ENOSPC

func TestFIFO(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.jsonl")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := Read(path, Cursor{}, Limits{}); !errors.Is(err, ErrNotRegular) {
		t.Errorf("FIFO: %v", err)
	}
	h := start(t, Options{}, dir)
	if n := h.count(Seen, ""); n != 0 {
		t.Errorf("%d files seen", n)
	}
}
