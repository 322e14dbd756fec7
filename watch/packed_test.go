package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func logOf(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "{\"n\":%d,\"pad\":\"%x\"}\n", i, i*7919)
	}
	return s.String()
}

// A log is compressed, comes back for a resume, and grows: every record is read once.
func TestCompressAndReturn(t *testing.T) {
	dir := t.TempDir()
	plain, small := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "a.jsonl.zst")
	content := logOf(2000)
	write(t, plain, content)
	b := read(t, plain, Cursor{}, Limits{})
	if len(b.Records) != 2000 {
		t.Fatalf("%d records", len(b.Records))
	}
	write(t, small, zst(content))
	os.Remove(plain)
	c := b.Cursor
	for range 2 {
		b = read(t, small, c, Limits{})
		if len(b.Records) > 0 || b.Reset || b.Cursor.Offset != int64(len(content)) || b.Cursor.Packed == 0 {
			t.Fatalf("compressed: %d records, %+v", len(b.Records), b.Cursor)
		}
		c = b.Cursor
	}
	write(t, plain, content)
	if b = read(t, plain, c, Limits{}); len(b.Records) > 0 || b.Reset {
		t.Fatalf("back: %d records, reset %v", len(b.Records), b.Reset)
	}
	appendTo(t, plain, "{\"new\":1}\n")
	if b = read(t, plain, b.Cursor, Limits{}); len(b.Records) != 1 || b.Reset {
		t.Fatalf("grown: %d records, reset %v", len(b.Records), b.Reset)
	}
}

func TestPackedFromStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl.zst")
	content := logOf(3000) + `{"last":"without newline"}`
	write(t, path, zst(content))
	var got []Record
	for c, more, calls := (Cursor{}), true, 0; more; calls++ {
		b := read(t, path, c, Limits{MaxBytes: 20_000})
		got = append(got, b.Records...)
		if c, more = b.Cursor, b.More; b.Reset || calls > 1000 {
			t.Fatalf("%+v", b.Cursor)
		}
	}
	if n := len(datas(t, content, got)); n != 3001 {
		t.Fatalf("%d records", n)
	}
	if r, ok, err := First(path, Limits{}); err != nil || !ok || r.Offset != 0 {
		t.Fatal(r, ok, err)
	}
	n := 0
	if err := ReadRange(path, got[1000].Offset, got[1002].Offset, func(r Record) error {
		if r.Sum != got[1000+n].Sum {
			t.Errorf("record %d differs", n)
		}
		n++
		return nil
	}); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	// Another, shorter and another, longer one under the same name.
	c := read(t, path, Cursor{}, Limits{}).Cursor
	for _, other := range []string{"{\"x\":1}\n", strings.Replace(content, "7", "8", -1) + "\n{\"more\":1}\n"} {
		write(t, path, zst(other))
		if b := read(t, path, c, Limits{}); !b.Reset || len(b.Records) != strings.Count(other, "{") {
			t.Fatalf("reset %v, %d records", b.Reset, len(b.Records))
		}
	}
}

func TestCorruptPacked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl.zst")
	content := logOf(50_000)
	packed := zst(content)
	plainCursor := Cursor{}
	{
		p := filepath.Join(t.TempDir(), "a.jsonl")
		write(t, p, content)
		for more := true; more; {
			b := read(t, p, plainCursor, Limits{})
			plainCursor, more = b.Cursor, b.More
		}
	}
	for name, bad := range map[string]string{
		"empty":      "",
		"no zstd":    "{\"a\":1}\n",
		"truncated":  packed[:len(packed)*2/3],
		"one byte":   packed[:1],
		"bit flips":  packed[:len(packed)/2] + strings.Repeat("\xa5", 64) + packed[len(packed)/2+64:],
		"tail noise": packed + "noise that is no frame",
	} {
		t.Run(name, func(t *testing.T) {
			write(t, path, bad)
			b, err := Read(path, Cursor{}, Limits{MaxBytes: 1 << 30})
			if name == "empty" {
				if err != nil || len(b.Records) > 0 {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%d records, error %v", len(b.Records), err)
			}
			t.Logf("%d records, %v", len(b.Records), err)
			for i, d := range datas(t, content, b.Records) {
				if !strings.HasPrefix(d, fmt.Sprintf("{\"n\":%d,", i)) {
					t.Fatalf("record %d is %s", i, d)
				}
			}
			if name == "truncated" && len(b.Records) == 0 {
				t.Error("nothing was saved of the readable part")
			}
			// With what was readable behind it, the error stays; a cursor further on is not reset.
			for _, c := range []Cursor{b.Cursor, plainCursor} {
				n, err := Read(path, c, Limits{MaxBytes: 1 << 30})
				if name == "tail noise" && c == plainCursor && err == nil {
					continue
				}
				if !errors.Is(err, ErrCorrupt) || len(n.Records) > 0 || n.Reset {
					t.Fatalf("again: %d records, reset %v, %v", len(n.Records), n.Reset, err)
				}
			}
		})
	}
}
