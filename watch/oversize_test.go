package watch

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestOversize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	big := `{"id":"head","body":"` + strings.Repeat("0123456789 \\u00e9 ", 20_000) + `","end":"tail"}`
	for _, c := range []struct{ name, line, rec string }{
		{"plain", big, big},
		{"crlf", big + "\r", big},
		{"blanks around", " \t" + big + strings.Repeat(" ", 500), big},
		{"bom", "\ufeff" + big, big},
		{"leading nuls", strings.Repeat("\x00", 300_000) + big, big},
		{"torn", big[:len(big)-1], ""},
		{"no object", "[" + big + "]", ""},
		{"cut by nuls", big[:200_000] + "\x00\x00", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := "{\"a\":1}\n" + c.line + "\n{\"b\":2}\n"
			write(t, path, file)
			b := read(t, path, Cursor{}, Limits{MaxLine: 100_000})
			n := 2
			if c.rec != "" {
				n = 3
			}
			if len(b.Records) != n || string(b.Records[n-1].Data) != `{"b":2}` || b.Cursor.Offset != int64(len(file)) {
				t.Fatalf("%d records, %+v", len(b.Records), b.Skipped)
			}
			if c.rec == "" {
				if b.Skipped.Invalid == 0 || b.Skipped.Oversize != 0 {
					t.Fatalf("%+v", b.Skipped)
				}
				return
			}
			r := b.Records[1]
			if !r.Oversize || b.Skipped.Oversize != 1 || r.Size != int64(len(c.rec)) || r.Sum != sha256.Sum256([]byte(c.rec)) ||
				string(r.Data) != c.rec[:HeadBytes] || string(r.Tail) != c.rec[len(c.rec)-TailBytes:] ||
				file[r.Offset:r.Offset+r.Size] != c.rec || r.Next != b.Records[2].Offset {
				t.Fatalf("oversize %v, size %d, offset %d, data %d, tail %d", r.Oversize, r.Size, r.Offset, len(r.Data), len(r.Tail))
			}
			// It is whole below the limit, with the same sum.
			if w := read(t, path, Cursor{}, Limits{}).Records[1]; w.Oversize || w.Sum != r.Sum || w.Offset != r.Offset {
				t.Fatalf("read whole: offset %d, size %d", w.Offset, w.Size)
			}
		})
	}
}

// A huge line that arrives in pieces is held, not searched again from its start, and delivered once.
func TestOversizeInPieces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	piece := strings.Repeat("x", 300_000)
	write(t, path, "{\"a\":1}\n{\"big\":\"")
	b := read(t, path, Cursor{}, Limits{})
	for i := range 50 {
		appendTo(t, path, piece)
		n := read(t, path, b.Cursor, Limits{})
		if len(n.Records) > 0 || n.Reset || n.Partial != int64(8+(i+1)*len(piece)) || n.Cursor.Offset != 8 || n.Cursor.Scan != n.Partial {
			t.Fatalf("piece %d: %+v", i, n)
		}
		b = n
	}
	appendTo(t, path, "\"}\n{\"b\":2}\n")
	b = read(t, path, b.Cursor, Limits{MaxBytes: 1 << 30})
	if len(b.Records) != 2 || !b.Records[0].Oversize || b.Records[0].Size != int64(50*len(piece)+10) || b.Cursor.Scan != 0 {
		t.Fatalf("%d records, %+v", len(b.Records), b.Cursor)
	}
	// Cut back in the middle of a held line, and finished otherwise.
	write(t, path, "{\"a\":1}\n{\"big\":\""+piece)
	b = read(t, path, b.Cursor, Limits{})
	if !b.Reset || b.Cursor.Scan == 0 {
		t.Fatalf("%+v", b)
	}
	if err := os.Truncate(path, 8); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, "{\"c\":3}\n")
	if b = read(t, path, b.Cursor, Limits{}); len(b.Records) != 1 || b.Reset || b.Cursor.Scan != 0 {
		t.Fatalf("%+v", b)
	}
}

// Lines of 100 MB are read in bounded memory.
func TestHugeLineMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 200 MB")
	}
	path := filepath.Join(t.TempDir(), "a.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	unit := strings.Repeat("log line 0123456789 ", 500)
	w.WriteString("{\"a\":1}\n{\"big\":\"")
	for range 10_000 {
		w.WriteString(unit)
	}
	w.WriteString("\"}\n" + strings.Repeat("\x00", 50<<20) + "{\"b\":2}\n")
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var got []Record
	for c, more := (Cursor{}), true; more; {
		b := read(t, path, c, Limits{})
		got = append(got, b.Records...)
		c, more = b.Cursor, b.More
	}
	runtime.ReadMemStats(&after)
	if len(got) != 3 || !got[1].Oversize || string(got[2].Data) != `{"b":2}` {
		t.Fatalf("%d records", len(got))
	}
	if grown := int64(after.Sys) - int64(before.Sys); grown > 64<<20 {
		t.Errorf("memory grew by %d MB", grown>>20)
	}
}
