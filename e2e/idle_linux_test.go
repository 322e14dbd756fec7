package e2e

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/happyd/happyd/e2e/harness"
)

// openCounter counts which files of some directories are opened, by anybody, as the kernel reports it.
type openCounter struct {
	fd    int
	mu    sync.Mutex
	files map[string]int // by name
	lost  bool
	done  chan struct{}
}

func countOpens(t *testing.T, dirs []string) *openCounter {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	c := &openCounter{fd: fd, files: map[string]int{}, done: make(chan struct{})}
	for _, d := range dirs {
		if _, err := unix.InotifyAddWatch(fd, d, unix.IN_OPEN); err != nil {
			t.Fatal(err)
		}
	}
	f := os.NewFile(uintptr(fd), "inotify")
	go func() {
		defer close(c.done)
		buf := make([]byte, 1<<16)
		for {
			n, err := f.Read(buf)
			if err != nil {
				return
			}
			c.take(buf[:n])
		}
	}()
	t.Cleanup(func() { f.Close(); <-c.done })
	return c
}

func (c *openCounter) take(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(b) >= unix.SizeofInotifyEvent {
		mask, size := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[12:])
		name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size]), "\x00")
		b = b[unix.SizeofInotifyEvent+size:]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			c.lost = true
		case mask&unix.IN_ISDIR == 0 && name != "":
			c.files[name]++
		}
	}
}

// opened says how many files were opened so far.
func (c *openCounter) opened() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.files {
		n += k
	}
	return n
}

// cpuTime is the processor time that a process has used.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return time.Duration(user+system) * time.Second / 100 // clock ticks are 10 ms for /proc
}

// memory is a figure of /proc/<pid>/status in KiB.
func memory(t *testing.T, pid int, key string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	t.Fatalf("no %s", key)
	return 0
}

// TestIdle: old sessions cost next to nothing. HAPPYD_IDLE is for how many seconds the daemon is watched (default 5).
func TestIdle(t *testing.T) {
	t.Parallel()
	seconds := 5
	if v := os.Getenv("HAPPYD_IDLE"); v != "" {
		var err error
		if seconds, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	const files, perDir = 5000, 50
	m := machine(t, harness.Options{History: "24h"})
	old := time.Now().AddDate(0, 0, -30)
	var dirs []string
	for i := range files {
		id := fmt.Sprintf("01d00000-0000-4000-8000-%012d", i)
		dir := m.Path(fmt.Sprintf("home/.claude/projects/-home-me-project-%03d", i/perDir))
		path := filepath.Join(dir, id+".jsonl")
		appendFile(t, path, strings.Repeat(talk(id, "an old question"), 10))
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		if i%perDir == 0 {
			dirs = append(dirs, dir)
		}
	}
	opens := countOpens(t, dirs)
	began := time.Now()
	m.Start()
	watching := func() bool {
		doc, err := m.Status()
		if err != nil {
			return false
		}
		n := 0
		for _, s := range doc.Sources {
			n += s.Files
		}
		return n >= files
	}
	if !harness.Wait(time.Minute, watching) {
		t.Fatal("the daemon does not know all files")
	}
	found := time.Since(began)
	start := cpuTime(t, m.PID())
	time.Sleep(3 * time.Second) // what the start left to do
	before := cpuTime(t, m.PID())
	time.Sleep(time.Duration(seconds) * time.Second)
	used := cpuTime(t, m.PID()) - before
	percent := 100 * used.Seconds() / float64(seconds)
	t.Logf("%d old files: known after %v with %v of processor time; %d opened; idle over %d s: %.2f %% of one core; RssAnon %.1f MiB, VmRSS %.1f MiB",
		files, found.Round(10*time.Millisecond), start, opens.opened(), seconds, percent,
		float64(memory(t, m.PID(), "RssAnon"))/1024, float64(memory(t, m.PID(), "VmRSS"))/1024)
	if n := opens.opened(); n > 0 || opens.lost {
		t.Errorf("%d old files were opened (events lost: %v)", n, opens.lost)
	}
	if seconds >= 30 && percent >= 0.5 {
		t.Errorf("idle costs %.2f %% of one core", percent)
	}
	// The eyes are open: a file that is opened now is counted, and a session that is written now is mirrored.
	id := "01d00000-0000-4000-8000-999999999999"
	appendFile(t, filepath.Join(dirs[0], id+".jsonl"), talk(id, "a new question"))
	m.Settle()
	if got := byNative(t, mustStreams(t, m)); len(got) != 1 || len(got[id].Envs) == 0 {
		t.Errorf("%d sessions on the server", len(got))
	}
	if opens.opened() == 0 {
		t.Error("the counter does not count")
	}
	m.Stop()
}
