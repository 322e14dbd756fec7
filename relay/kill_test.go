package relay

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// childMain is a relay in a process of its own. It dies with its stdin at the
// latest.
func childMain() {
	r, err := Open(Options{Path: os.Getenv("RELAY_TEST_CHILD")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ln, err := r.Listen(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(ln.Addr())
	go func() {
		bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}()
	r.Serve(context.Background(), ln)
}

// startChild starts a relay on the file and returns its process and URL.
func startChild(t *testing.T, path string) (*exec.Cmd, string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "RELAY_TEST_CHILD="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill() // it may be gone already
		cmd.Wait()
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the relay did not start: %v", err)
	}
	return cmd, "http://" + strings.TrimSpace(addr)
}

// Killed at any moment, the relay has what it acknowledged, and numbers without
// gaps.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	const sessions, rounds = 4, 6
	acknowledged := make([]map[string]bool, sessions) // local ids by session
	for i := range acknowledged {
		acknowledged[i] = map[string]bool{}
	}
	total := 0
	for round := range rounds {
		cmd, url := startChild(t, path)
		b := &bench{T: t, url: url, client: &http.Client{Transport: tr, Timeout: 10 * time.Second}}
		u := b.signIn("alice")
		var wg sync.WaitGroup
		for i := range sessions {
			messages := "/v3/sessions/" + u.session(fmt.Sprint(i)) + "/messages"
			for id := range check(t, u, messages) {
				delete(acknowledged[i], id)
			}
			if len(acknowledged[i]) > 0 {
				t.Fatalf("round %d: %d acknowledged messages are lost", round, len(acknowledged[i]))
			}
			wg.Go(func() { acknowledged[i] = write(u, messages, fmt.Sprint(round)) })
		}
		time.Sleep(time.Duration(50+rand.IntN(150)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		cmd.Wait()
		for _, ids := range acknowledged {
			total += len(ids)
		}
	}
	if total == 0 {
		t.Error("nothing was acknowledged between the kills")
	}
	t.Logf("%d messages acknowledged in %d rounds", total, rounds)
}

// write posts batches until the relay is gone and returns what it acknowledged.
func write(u user, path, prefix string) map[string]bool {
	got := map[string]bool{}
	for i := 0; ; i++ {
		var ids []string
		for j := range 1 + rand.IntN(20) {
			ids = append(ids, fmt.Sprintf("%s-%d-%d", prefix, i, j))
		}
		req, err := http.NewRequest("POST", u.url+path, strings.NewReader(compact(batch(ids...))))
		if err != nil {
			return got
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+u.token)
		resp, err := u.client.Do(req)
		if err != nil {
			return got
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return got
		}
		for _, id := range ids {
			got[id] = true
		}
	}
}

// check reads a whole session and returns its local ids; numbers must have no
// gap and ids no double.
func check(t *testing.T, u user, path string) map[string]bool {
	t.Helper()
	got := map[string]bool{}
	for {
		page := u.ok("GET", fmt.Sprintf("%s?after_seq=%d&limit=500", path, len(got)), nil)
		for _, m := range page["messages"].([]any) {
			m := m.(object)
			id := m["localId"].(string)
			if m["seq"] != float64(len(got)+1) || got[id] {
				t.Fatalf("message %v has number %v after %d messages", id, m["seq"], len(got))
			}
			got[id] = true
		}
		if page["hasMore"] != true {
			return got
		}
	}
}

func BenchmarkPost50(b *testing.B) {
	for _, size := range []int{300, 20_000} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			t := &testing.T{}
			r, err := Open(Options{Path: filepath.Join(b.TempDir(), "relay.db")})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			ctx, cancel := context.WithCancel(context.Background())
			ln, err := r.Listen(ctx)
			if err != nil {
				b.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- r.Serve(ctx, ln) }()
			defer func() { cancel(); <-served }()
			tr := &http.Transport{}
			defer tr.CloseIdleConnections()
			u := (&bench{T: t, relay: r, url: "http://" + ln.Addr().String(), client: &http.Client{Transport: tr}}).signIn("alice")
			path := "/v3/sessions/" + u.session("t") + "/messages"
			content := strings.Repeat("x", size)
			b.SetBytes(int64(50 * size))
			for n := 0; b.Loop(); n++ {
				var messages []object
				for i := range 50 {
					messages = append(messages, object{"content": content, "localId": fmt.Sprintf("%d-%d", n, i)})
				}
				u.ok("POST", path, object{"messages": messages})
			}
		})
	}
}
