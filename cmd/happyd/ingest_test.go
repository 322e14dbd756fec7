package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/control"
)

// streamServer is a control socket that hands over the lines it is sent.
func streamServer(t *testing.T, dir string, lines chan<- string, ended chan<- struct{}) (stop func()) {
	t.Helper()
	srv, err := control.Listen(dir, control.Options{
		Status: func(context.Context) (control.StatusDoc, error) { return control.StatusDoc{}, nil },
		Hub:    &control.Hub{},
		Ingest: func(_ context.Context, _ string, body io.Reader) error {
			in := bufio.NewScanner(body)
			for in.Scan() {
				lines <- in.Text()
			}
			if in.Err() == nil {
				close(ended)
			}
			return in.Err()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestStreamSurvivesRestartsOfTheDaemon(t *testing.T) {
	dir := t.TempDir()
	in, out := io.Pipe()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	lines, ended := make(chan string, 100), make(chan struct{})
	stop := streamServer(t, dir, lines, ended)
	sent := make(chan error, 1)
	go func() { sent <- sendStream(ctx, dir, "codex", []byte("header\n"), in) }()
	var want []string
	expect := func() {
		t.Helper()
		for _, w := range append([]string{"header"}, want...) {
			select {
			case got := <-lines:
				if got != w {
					t.Fatalf("got %q, want %q", got, w)
				}
			case <-ctx.Done():
				t.Fatalf("timed out waiting for %q", w)
			}
		}
	}
	say := func(s string) {
		t.Helper()
		want = append(want, s)
		if _, err := io.WriteString(out, s+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	say("one")
	expect()
	for i := range 3 {
		stop()
		// The daemon is away while the agent goes on.
		say(fmt.Sprintf("away %d", i))
		stop = streamServer(t, dir, lines, ended)
		expect()
	}
	say("last")
	if got := <-lines; got != "last" {
		t.Fatalf("got %q", got)
	}
	out.Close()
	if err := <-sent; err != nil {
		t.Error(err)
	}
	<-ended
	stop()
}

func TestStreamEndsWithItsInput(t *testing.T) {
	dir := t.TempDir()
	lines, ended := make(chan string, 10), make(chan struct{})
	stop := streamServer(t, dir, lines, ended)
	defer stop()
	if err := sendStream(context.Background(), dir, "codex", []byte("header\n"), strings.NewReader("a\nb")); err != nil {
		t.Fatal(err)
	}
	<-ended
	if got := []string{<-lines, <-lines, <-lines}; fmt.Sprint(got) != "[header a b]" {
		t.Errorf("got %q", got)
	}
	broken := errors.New("pipe broke")
	err := sendStream(context.Background(), dir, "codex", []byte("header\n"), io.MultiReader(strings.NewReader("a\n"), errReader{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want the pipe's", err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }
