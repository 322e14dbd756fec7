package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

func TestSecondInstanceIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	open(t, path)
	begin := time.Now()
	_, err := Open(path, Options{})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("second: %v", err)
	}
	if d := time.Since(begin); d > 1500*time.Millisecond {
		t.Errorf("refused after %v", d)
	}
}

// TestLeftoverLockFiles: only the OS lock counts, never what the file says.
func TestLeftoverLockFiles(t *testing.T) {
	for name, content := range map[string]string{
		"empty":     "",
		"alive pid": strconv.Itoa(os.Getppid()) + "\n",
		"junk":      strings.Repeat("\x00junk", 100),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.db")
			must(t, os.WriteFile(path+".lock", []byte(content), 0o600))
			open(t, path)
			if b, err := os.ReadFile(path + ".lock"); err != nil || string(b) != strconv.Itoa(os.Getpid())+"\n" {
				t.Errorf("lock file says %q, %v", b, err)
			}
		})
	}
}

// TestKilledHolderLetsGo: the next instance starts at once.
func TestKilledHolderLetsGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_, err = Open(path, Options{})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", cmd.Process.Pid)) {
		t.Errorf("while it lives: %v", err)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	open(t, path)
}

// filled makes a store file with a little of everything.
func filled(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	c := scope(t, s, "x")
	for i := range 40 {
		key := fmt.Sprint("k", i%4)
		must(t, c.Commit(context.Background(), Commit{Session: key, State: make([]byte, 5000), Info: &SessionInfo{Tag: key},
			Seen: []uint64{1}, Cursors: map[string][]byte{fmt.Sprint("/", i): []byte("c")}, Messages: []Message{msg(fmt.Sprint(i), strings.Repeat("b", 9000))}}))
	}
	must(t, s.Close())
	return path
}

func TestNewerFile(t *testing.T) {
	path := filled(t)
	db, err := bolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketMeta).Put(keySchema, binary.BigEndian.AppendUint32(nil, schemaVersion+1))
	}))
	must(t, db.Close())
	if _, err := Open(path, Options{}); !errors.Is(err, ErrNewer) {
		t.Errorf("got %v", err)
	}
}

func TestForeignFiles(t *testing.T) {
	for name, create := range map[string]func(path string) error{
		"text":  func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("hello\n", 5000)), 0o600) },
		"short": func(p string) error { return os.WriteFile(p, []byte("x"), 0o600) },
		"zeros": func(p string) error { return os.WriteFile(p, make([]byte, 1<<16), 0o600) },
		"other bolt": func(p string) error {
			db, err := bolt.Open(p, 0o600, nil)
			if err != nil {
				return err
			}
			defer db.Close()
			return db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("other")); return err })
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.db")
			must(t, create(path))
			before, err := os.ReadFile(path)
			must(t, err)
			if _, err := Open(path, Options{}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v", err)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
	t.Run("empty", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s.db")
		must(t, os.WriteFile(path, nil, 0o600))
		open(t, path) // a power cut right after the creation
	})
}

// TestTornFile: a file cut anywhere, or with a block overwritten anywhere, is
// an error somewhere or works, but never a crash.
func TestTornFile(t *testing.T) {
	whole, err := os.ReadFile(filled(t))
	must(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for i := range 60 {
		b := append([]byte(nil), whole...)
		if i%2 == 0 {
			b = b[:rng.IntN(len(b)-1)+1]
		} else {
			at := rng.IntN(len(b))
			for j := at; j < min(at+4096, len(b)); j++ {
				b[j] = byte(rng.Uint32())
			}
		}
		path := filepath.Join(t.TempDir(), "s.db")
		must(t, os.WriteFile(path, b, 0o600))
		s, err := Open(path, Options{})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%d: %v", i, err)
			}
			refused++
			continue
		}
		c, err := s.Scope("x")
		if err == nil {
			_, _ = c.Sessions()
			_, _ = c.Cursors()
			for k := range 4 {
				_, _ = c.Peek(fmt.Sprint("k", k), 100, 1<<20)
				_, _ = c.Seen(fmt.Sprint("k", k))
			}
			err = c.Commit(context.Background(), Commit{Session: "k1", State: []byte("x"), Messages: []Message{msg("z", "z")}})
		}
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrWrite) {
			t.Errorf("%d: %v", i, err)
		}
		_ = s.Close()
	}
	if refused < 10 {
		t.Errorf("only %d of 60 were refused at the opening", refused)
	}
}

func TestFullDiskRecovers(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	c := scope(t, s, "x")
	must(t, c.Commit(ctx, Commit{Session: "k", Info: &SessionInfo{Tag: "t"}, Messages: []Message{msg("1", "a")}}))
	setMaxSize := func(n int) { // no room beyond n bytes
		s.mu.Lock()
		defer s.mu.Unlock()
		s.db.MaxSize = n
	}
	setMaxSize(int(s.FileSize()))
	big := Commit{Session: "k", State: make([]byte, 1<<20), Cursors: map[string][]byte{"/f": []byte("new")}, Messages: []Message{msg("2", "b")}}
	for range 3 {
		if err := c.Commit(ctx, big); !errors.Is(err, ErrWrite) {
			t.Fatalf("got %v", err)
		}
	}
	if err := s.Health(); !errors.Is(err, ErrWrite) {
		t.Errorf("health %v", err)
	}
	if state, _, ok, err := c.Session("k"); err != nil || !ok || len(state) != 0 {
		t.Errorf("after the failure: %d bytes of state, %v", len(state), err)
	}
	if _, ok, err := c.Cursor("/f"); ok || err != nil {
		t.Errorf("a part of the commit is there, %v", err)
	}
	if got := localIDs(t, c, "k"); got != "1" || c.Queued("k").Count != 1 {
		t.Errorf("outbox %s", got)
	}
	setMaxSize(0)
	must(t, c.Commit(ctx, big))
	must(t, s.Health())
	if got := localIDs(t, c, "k"); got != "1 2" {
		t.Errorf("outbox %s", got)
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	if os.Getuid() == 0 || runtime.GOOS == "windows" {
		t.Skip("permissions do not bind this user")
	}
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o500))
	if _, err := Open(filepath.Join(dir, "s.db"), Options{}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("got %v", err)
	}
}

func TestWideModeIsNarrowed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes")
	}
	path := filled(t)
	must(t, os.Chmod(path, 0o644))
	open(t, path)
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
}

// TestShrinksAfterDraining: a backlog makes the file big, its end small again,
// while it is open, with its lock held and nothing of the rest lost.
func TestShrinksAfterDraining(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	c := scope(t, s, "x")
	const n = 300
	for i := 0; i < n; i += 20 {
		var ms []Message
		for j := range 20 {
			ms = append(ms, msg(fmt.Sprint(i+j), strings.Repeat("x", 50_000)))
		}
		must(t, c.Commit(ctx, Commit{Session: "k", State: []byte("s"), Info: &SessionInfo{Tag: "t"}, Seen: []uint64{uint64(i)}, Messages: ms}))
	}
	big := s.FileSize()
	for {
		es, err := c.Peek("k", 50, 1<<20)
		must(t, err)
		if len(es) == 0 {
			break
		}
		must(t, c.Ack(ctx, "k", "t", es[len(es)-1].Seq, int64(es[len(es)-1].Seq)))
	}
	must(t, c.Commit(ctx, Commit{Session: "k", Messages: []Message{msg("last", "x")}}))
	if small := s.FileSize(); big < 12<<20 || small > big/2 {
		t.Errorf("from %d to %d bytes", big, small)
	}
	if _, err := Open(path, Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("after the compaction: %v", err)
	}
	must(t, s.Close())
	s = open(t, path)
	if size := s.FileSize(); size > 8<<20 {
		t.Errorf("%d bytes after a restart", size)
	}
	c = scope(t, s, "x")
	seen, err := c.Seen("k")
	must(t, err)
	es, err := c.Peek("k", 10, 1<<20)
	must(t, err)
	if len(seen) != n/20 || len(es) != 1 || es[0].Seq != n+1 {
		t.Errorf("seen %d, outbox %+v", len(seen), es)
	}
}

func TestLeftoverOfACompactionIsRemoved(t *testing.T) {
	path := filled(t)
	must(t, os.WriteFile(path+tmpSuffix, []byte("half a copy"), 0o600))
	c := scope(t, open(t, path), "x")
	if got := localIDs(t, c, "k0"); len(strings.Fields(got)) != 10 {
		t.Errorf("outbox %s", got)
	}
	if _, err := os.Stat(path + tmpSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("leftover: %v", err)
	}
}
