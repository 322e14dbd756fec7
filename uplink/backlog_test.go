package uplink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/store"
	"github.com/happyd/happyd/uplink/fakehappy"
)

// rssAnon is this process's anonymous memory in bytes, which leaves out the
// memory map of the store.
func rssAnon() (int, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return kb << 10, err
		}
	}
	return 0, errors.New("no RssAnon")
}

// TestBacklogStaysOnDisk: a backlog on a dead server costs no memory, is
// delivered when the server comes, and the file shrinks again. The size in MiB
// can be set to measure with more.
func TestBacklogStaysOnDisk(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("measures with /proc")
	}
	total := 24 << 20
	if s := os.Getenv("HAPPYD_BACKLOG_MIB"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		total = n << 20
	}
	const entry = 32 << 10
	fake := fakehappy.New()
	addr, err := fake.Start()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, fake, addr)
	defer r.close()
	r.store.Close()
	r.path = filepath.Join(t.TempDir(), "state.db") // not in memory
	r.openStore()
	r.fake.Down()
	r.start(func(o *Options) { o.Random = func() float64 { return 0.02 } })

	var peak int
	for i := 0; i < total/entry; i += 32 {
		key := fmt.Sprint("s", i/32%5)
		c := store.Commit{Session: key, Info: r.info(key, "t", 0)}
		for j := range 32 {
			c.Messages = append(c.Messages, store.Message{LocalID: fmt.Sprint(i + j), Kind: "text", Sealed: make([]byte, entry)})
		}
		r.commit(c)
		if n, err := rssAnon(); err != nil {
			t.Fatal(err)
		} else {
			peak = max(peak, n)
		}
	}
	full := r.store.FileSize()
	if st := r.status(); st.State != StateOffline || st.Bytes < int64(total) || r.store.OutboxBytes() != st.Bytes {
		t.Fatalf("status %+v", st)
	}
	r.stop()
	queuePeak := peak

	// The fake keeps what it gets in memory, so a drain over HTTP would measure
	// the fake: acknowledge as the uplink does.
	begin := time.Now()
	for key := range r.scope.Pending() {
		for {
			es, err := r.scope.Peek(key, DefaultBatchCount, DefaultBatchBytes*3/4)
			if err != nil {
				t.Fatal(err)
			}
			if len(es) == 0 {
				break
			}
			body, err := encodeBatch(es)
			if err != nil || len(body) > DefaultBatchBytes+8192 {
				t.Fatalf("a body of %d bytes, %v", len(body), err)
			}
			if err := r.scope.Ack(context.Background(), key, r.tag(key), es[len(es)-1].Seq, 1); err != nil {
				t.Fatal(err)
			}
			if n, err := rssAnon(); err == nil {
				peak = max(peak, n)
			}
		}
	}
	drained := time.Since(begin)
	if err := r.scope.Commit(context.Background(), store.Commit{Session: "s0", State: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	t.Logf("backlog %d MiB: RssAnon at most %d MiB while queueing, %d MiB in all; file %d MiB, after draining (%v) %d MiB",
		total>>20, queuePeak>>20, peak>>20, full>>20, drained.Round(time.Millisecond), r.store.FileSize()>>20)
	if limit := 150 << 20; peak > limit && !raceEnabled {
		t.Errorf("%d MiB of anonymous memory", peak>>20)
	}
	if size := r.store.FileSize(); size > full/4 {
		t.Errorf("the file has %d of %d bytes after draining", size, full)
	}
}
