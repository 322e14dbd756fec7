//go:build unix

package socketio

import (
	"errors"
	"syscall"
	"testing"
	"time"
)

// A frozen server keeps its TCP connection; only its silence gives it away.
func TestOfficialServerFreezes(t *testing.T) {
	o := startOfficial(t, `{"pingInterval":300,"pingTimeout":2000}`)
	c := dial(t, o.url(), Options{Auth: good})
	if err := o.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	frozen := time.Now()
	waitFor(t, "the end", c.Done())
	if !errors.Is(c.Err(), ErrSilent) {
		t.Errorf("ended with %v", c.Err())
	}
	if took := time.Since(frozen); took < 200*time.Millisecond {
		t.Errorf("gave up after %v already", took)
	}
}
