package store

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
)

func FuzzDecodeMessage(f *testing.F) {
	f.Add(encodeMessage(msg("id", "body")))
	f.Add([]byte{messageVersion, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, v []byte) {
		m, err := decodeMessage(v)
		if err != nil {
			return
		}
		again, err := decodeMessage(encodeMessage(m))
		if err != nil || again.LocalID != m.LocalID || again.Turn != m.Turn || again.Kind != m.Kind || !bytes.Equal(again.Sealed, m.Sealed) {
			t.Errorf("%+v became %+v, %v", m, again, err)
		}
	})
}

func TestOneAccountsBacklogIsNotAnothers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "happyd.db")
	s, err := Open(path, Options{hasty: true})
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Scope("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(context.Background(), Commit{Session: "s", Messages: []Message{{LocalID: "1", Sealed: make([]byte, 1000)}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(path, Options{hasty: true}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a, _ = s.Scope("a")
	b, err := s.Scope("b")
	if err != nil {
		t.Fatal(err)
	}
	if a.QueuedBytes() < 1000 || b.QueuedBytes() != 0 {
		t.Errorf("queued %d and %d bytes", a.QueuedBytes(), b.QueuedBytes())
	}
	if err := a.Commit(context.Background(), Commit{Session: "s", DropOutbox: true}); err != nil {
		t.Fatal(err)
	}
	if a.QueuedBytes() != 0 {
		t.Errorf("%d bytes are left", a.QueuedBytes())
	}
}
