package watch

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func write(t testing.TB, path, s string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t testing.TB, path, s string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(s)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string, c Cursor, l Limits) Batch {
	t.Helper()
	b, err := Read(path, c, l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// datas returns the records' data, and checks what must hold for every record that was read whole.
func datas(t testing.TB, file string, recs []Record) []string {
	t.Helper()
	out := []string{}
	for _, r := range recs {
		out = append(out, string(r.Data))
		if r.Oversize {
			continue
		}
		if r.Sum != sha256.Sum256(r.Data) || r.Size != int64(len(r.Data)) {
			t.Fatalf("record at %d: sum or size is wrong", r.Offset)
		}
		if file != "" && file[r.Offset:r.Offset+r.Size] != string(r.Data) {
			t.Fatalf("record at %d is not what the file holds there", r.Offset)
		}
	}
	return out
}

func TestReadLines(t *testing.T) {
	nul := strings.Repeat("\x00", 1000)
	rec := `{"type":"user","message":{"content":[{"a":1}]}}`
	for _, c := range []struct {
		name, in string
		want     []string
		partial  int64
		skipped  Skips
	}{
		{"empty file", "", nil, 0, Skips{}},
		{"two lines", "{\"a\":1}\n{\"b\":2}\n", []string{`{"a":1}`, `{"b":2}`}, 0, Skips{}},
		{"half last line", "{\"a\":1}\n{\"b\":", []string{`{"a":1}`}, 5, Skips{}},
		{"whole last line without newline is held", "{\"a\":1}", nil, 7, Skips{}},
		{"crlf, bom, blanks", "\ufeff\r\n\ufeff{\"a\":1}\r\n\n \t\n  {\"b\":2} \r\n", []string{`{"a":1}`, `{"b":2}`}, 0, Skips{}},
		{"no objects", "[1,2]\n42\nnull\n\"x\"\ngarbage\n{\"a\":1}\n", []string{`{"a":1}`}, 0, Skips{Invalid: 5}},
		{"invalid object in the middle", "{\"a\":1}\n{\"a\":tru}\n{\"b\":2}\n", []string{`{"a":1}`, `{"b":2}`}, 0, Skips{Invalid: 1}},
		{"duplicate keys, lone surrogate, bad utf-8", "{\"a\":1,\"a\":\"\\ud800\xff\"}\n", []string{"{\"a\":1,\"a\":\"\\ud800\xff\"}"}, 0, Skips{}},
		{"line separators are no line ends", "{\"a\":\"\u2028\u0085\"}\n", []string{"{\"a\":\"\u2028\u0085\"}"}, 0, Skips{}},
		{"nul run alone", "{\"a\":1}\n" + nul + "\n{\"b\":2}\n", []string{`{"a":1}`, `{"b":2}`}, 0, Skips{NUL: 1}},
		{"nul run before a record", nul + "{\"b\":2}\n", []string{`{"b":2}`}, 0, Skips{NUL: 1}},
		{"nul run behind a record", "{\"b\":2}" + nul + "\n", []string{`{"b":2}`}, 0, Skips{NUL: 1}},
		{"nul run between records", "{\"a\":1}" + nul + "{\"b\":2}\n", []string{`{"a":1}`, `{"b":2}`}, 0, Skips{NUL: 1}},
		{"nul run behind a stub", "{\"a\":\"x" + nul + "{\"b\":2}\n", []string{`{"b":2}`}, 0, Skips{NUL: 1, Invalid: 1}},
		{"nul run at the end is held", "{\"a\":1}\n" + nul, []string{`{"a":1}`}, 1000, Skips{}},
		{"stub in a string", `{"a":"x` + rec + "\n", []string{rec}, 0, Skips{Glued: 1}},
		{"stub in a key", `{"ab` + rec + "\n", []string{rec}, 0, Skips{Glued: 1}},
		{"stub behind a backslash", `{"a":"x\` + rec + "\n", []string{rec}, 0, Skips{Glued: 1}},
		{"stub in a unicode escape", `{"a":"x\u00` + rec + "\n", []string{rec}, 0, Skips{Glued: 1}},
		{"stub in a word", `{"a":tr` + rec + "\n", []string{rec}, 0, Skips{Glued: 1}},
		{"stub behind a comma", `{"a":1,` + rec + "\n", []string{rec}, 0, Skips{Glued: 1}},
		{"stub of one byte", `{` + rec + "\n", []string{rec}, 0, Skips{Glued: 1}},
		{"stub where a value is due", `{"type":"a","message":` + rec + "\n", []string{rec}, 0, Skips{Glued: 1}},
		{"stub in a list", `{"type":"a","message":[1,` + rec + "\n", []string{rec}, 0, Skips{Glued: 1}},
		{"stub of a nested object", `{"type":"a","message":{"content":[{"type":"text","text":"ab` + rec + "\n", []string{rec}, 0, Skips{Glued: 1}},
		{"two stubs", `{"a":"x{"b":"y` + rec + "\n", []string{rec}, 0, Skips{Glued: 1}},
		{"record with spaces behind the brace", `{"a":"x{ "b" : 2 }` + "\n", []string{`{ "b" : 2 }`}, 0, Skips{Glued: 1}},
		{"tail of a torn record in front", `t":"x"}` + rec + "\n", []string{rec}, 0, Skips{Glued: 1}},
		{"newline lost", `{"a":1}{"b":2}` + "\n", []string{`{"a":1}`, `{"b":2}`}, 0, Skips{}},
		{"newline lost, then a stub", `{"a":1}{"b":"x` + "\n", []string{`{"a":1}`}, 0, Skips{Invalid: 1}},
		{"newline lost, then a stub and a record", `{"a":1}{"b":"x` + rec + "\n", []string{`{"a":1}`, rec}, 0, Skips{Glued: 1}},
		{"torn record with newline: nothing inside is taken", rec[:len(rec)-1] + "\n" + rec[:len(rec)-3] + "\n" + rec[:len(rec)-2] + "\n{\"a\":1}\n", []string{`{"a":1}`}, 0, Skips{Invalid: 3}},
		{"bad escape: nothing inside is taken", `{"a":"\q","b":{"c":1}}` + "\n", nil, 0, Skips{Invalid: 1}},
		{"newline lost, then rubbish", `{"a":1}[2]` + "\n", []string{`{"a":1}`}, 0, Skips{Invalid: 1}},
		{"stub, record and rubbish", `{"a":"x{"a":1}}` + "\n", nil, 0, Skips{Invalid: 1}},
		{"unescaped quote: nothing inside is taken", `{"a":"say "{"b":1}" please"}` + "\n", nil, 0, Skips{Invalid: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.jsonl")
			write(t, path, c.in)
			b := read(t, path, Cursor{}, Limits{})
			if got := datas(t, c.in, b.Records); len(got) != len(c.want) || len(got) > 0 && !reflect.DeepEqual(got, c.want) {
				t.Errorf("records %q, want %q", got, c.want)
			}
			if b.Partial != c.partial || b.Skipped != c.skipped || b.Reset || b.More {
				t.Errorf("partial %d skipped %+v reset %v more %v, want partial %d skipped %+v", b.Partial, b.Skipped, b.Reset, b.More, c.partial, c.skipped)
			}
			if want := int64(len(c.in)) - c.partial; b.Cursor.Offset != want {
				t.Errorf("cursor at %d, want %d", b.Cursor.Offset, want)
			}
			if n := len(b.Records); n > 0 && c.skipped == (Skips{}) && b.Records[n-1].Next > b.Cursor.Offset {
				t.Errorf("last record's next %d is behind the cursor %d", b.Records[n-1].Next, b.Cursor.Offset)
			}
			// What was read can be read again from where it stands.
			for _, r := range b.Records {
				var again []Record
				if err := ReadRange(path, r.Offset, r.Offset+1, func(r Record) error { again = append(again, r); return nil }); err != nil {
					t.Fatal(err)
				}
				if len(again) != 1 || again[0].Offset != r.Offset || again[0].Sum != r.Sum {
					t.Errorf("read again at %d: %d records", r.Offset, len(again))
				}
			}
			if next := read(t, path, b.Cursor, Limits{}); len(next.Records) > 0 || next.Reset || next.Cursor != b.Cursor {
				t.Errorf("a second read is not idle: %+v", next)
			}
		})
	}
}

func TestPartialLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	full := "{\"a\":1}\n{\"text\":\"caf\u00e9\"}\n"
	cut := strings.Index(full, "\u00e9") + 1 // inside the character
	write(t, path, full[:cut])
	b := read(t, path, Cursor{}, Limits{})
	if len(b.Records) != 1 || b.Partial == 0 || b.Skipped != (Skips{}) {
		t.Fatalf("%+v", b)
	}
	appendTo(t, path, full[cut:])
	b = read(t, path, b.Cursor, Limits{})
	if got := datas(t, full, b.Records); !reflect.DeepEqual(got, []string{"{\"text\":\"caf\u00e9\"}"}) || b.Reset {
		t.Fatalf("%q", got)
	}
}

func TestAcceptTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	for _, c := range []struct {
		name, tail string
		want       int
	}{
		{"whole", `{"b":2}`, 1}, {"half", `{"b":2`, 0}, {"no object", `[1]`, 0}, {"with cr", "{\"b\":2}\r", 1},
		{"behind nuls", "\x00\x00{\"b\":2}", 1}, {"before nuls", "{\"b\":2}\x00\x00", 1}, {"two", `{"b":2}{"c":3}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, path, "{\"a\":1}\n"+c.tail)
			b := read(t, path, Cursor{}, Limits{AcceptTail: true})
			if len(b.Records) != 1+c.want {
				t.Fatalf("%d records", len(b.Records))
			}
			if c.want == 0 {
				return
			}
			// Whoever appends next, with or without the missing newline, the accepted record does not come again.
			for _, next := range []string{"\n{\"c\":3}\n", "{\"c\":3}\n"} {
				if c.name == "with cr" && next[0] != '\n' {
					continue
				}
				write(t, path, "{\"a\":1}\n"+c.tail+next)
				n := read(t, path, b.Cursor, Limits{})
				if got := datas(t, "", n.Records); !reflect.DeepEqual(got, []string{`{"c":3}`}) || n.Reset {
					t.Fatalf("%q then %q: %q reset %v", c.tail, next, got, n.Reset)
				}
			}
		})
	}
}

func TestReset(t *testing.T) {
	lines := func(from, to int, pad string) string {
		var s strings.Builder
		for i := from; i < to; i++ {
			s.WriteString(`{"n":` + string(rune('0'+i)) + `,"pad":"` + pad + "\"}\n")
		}
		return s.String()
	}
	long := strings.Repeat("p", 3000)
	before := lines(0, 4, long)
	for _, c := range []struct {
		name  string
		do    func(t *testing.T, path string)
		reset bool
		want  int
	}{
		{"truncated and rewritten shorter", func(t *testing.T, p string) { write(t, p, lines(0, 2, long)) }, true, 2},
		{"truncated to nothing", func(t *testing.T, p string) { write(t, p, "") }, true, 0},
		{"rewritten longer, other start", func(t *testing.T, p string) { write(t, p, lines(5, 9, long)+lines(0, 3, long)) }, true, 7},
		{"rewritten longer, same start", func(t *testing.T, p string) { write(t, p, lines(0, 1, long)+lines(5, 9, long)) }, true, 5},
		{"replaced by another file", func(t *testing.T, p string) { write(t, p+"x", lines(5, 9, long)); rename(t, p+"x", p) }, true, 4},
		{"replaced by a copy with more", func(t *testing.T, p string) { write(t, p+"x", before+lines(4, 6, long)); rename(t, p+"x", p) }, false, 2},
		{"deleted, inode perhaps reused", func(t *testing.T, p string) { os.Remove(p); write(t, p, lines(5, 9, long)+"{}\n") }, true, 5},
		{"deleted and restored", func(t *testing.T, p string) { os.Remove(p); write(t, p, before) }, false, 0},
		{"appended", func(t *testing.T, p string) { appendTo(t, p, lines(4, 5, long)) }, false, 1},
		{"untouched", func(*testing.T, string) {}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.jsonl")
			write(t, path, before)
			cur := read(t, path, Cursor{}, Limits{}).Cursor
			blob, err := json.Marshal(cur)
			if err != nil {
				t.Fatal(err)
			}
			var stored Cursor
			if err := json.Unmarshal(blob, &stored); err != nil || stored != cur {
				t.Fatalf("cursor did not survive JSON: %s, %v", blob, err)
			}
			c.do(t, path)
			b := read(t, path, stored, Limits{})
			if b.Reset != c.reset || len(b.Records) != c.want {
				t.Fatalf("reset %v with %d records, want %v with %d", b.Reset, len(b.Records), c.reset, c.want)
			}
			if c.reset && len(b.Records) > 0 && b.Records[0].Offset != 0 {
				t.Fatalf("starts at %d after a reset", b.Records[0].Offset)
			}
			if again := read(t, path, b.Cursor, Limits{}); again.Reset || len(again.Records) > 0 {
				t.Fatalf("second read: %+v", again)
			}
		})
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	var want []string
	var file strings.Builder
	for i := range 100 {
		s := `{"n":"` + strings.Repeat("x", i) + `"}`
		want = append(want, s)
		file.WriteString(s + "\n[junk]\n")
	}
	write(t, path, file.String()+`{"half`)
	for _, l := range []Limits{{}, {MaxRecords: 1}, {MaxRecords: 7}, {MaxBytes: 1}, {MaxBytes: 500}, {MaxBytes: 500, MaxRecords: 3}} {
		var got []string
		var c Cursor
		var skipped Skips
		for calls := 0; ; calls++ {
			b := read(t, path, c, l)
			if l.MaxRecords > 0 && len(b.Records) > l.MaxRecords || b.Reset || calls > 500 {
				t.Fatalf("%+v: call %d: %d records, reset %v", l, calls, len(b.Records), b.Reset)
			}
			got = append(got, datas(t, file.String(), b.Records)...)
			skipped.Add(b.Skipped)
			c = b.Cursor
			if !b.More {
				if b.Partial != 6 {
					t.Fatalf("%+v: partial %d", l, b.Partial)
				}
				break
			}
		}
		if !reflect.DeepEqual(got, want) || skipped.Invalid != 100 {
			t.Fatalf("%+v: %d records, skipped %+v", l, len(got), skipped)
		}
	}
}

func TestNotRegular(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.jsonl")
	write(t, path, "{}\n")
	if _, err := Read(filepath.Join(dir, "none"), Cursor{}, Limits{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := Read(dir, Cursor{}, Limits{}); !errors.Is(err, ErrNotRegular) {
		t.Errorf("directory: %v", err)
	}
	if err := os.Symlink(path, filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	if _, err := Read(filepath.Join(dir, "link"), Cursor{}, Limits{}); !errors.Is(err, ErrNotRegular) {
		t.Errorf("symbolic link: %v", err)
	}
}

func TestEnd(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name, in string
		left     int64
	}{
		{"empty", "", 0}, {"whole", "{\"a\":1}\n", 0}, {"half", "{\"a\":1}\n{\"b", 3}, {"only half", "{\"b", 3},
		{"unterminated record", "{\"a\":1}\n{\"b\":2}", 0}, {"long half", "{}\n{\"" + strings.Repeat("x", 200_000), 200_002},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, "a.jsonl")
			write(t, path, c.in)
			cur, err := End(path)
			if err != nil || cur.Offset != int64(len(c.in))-c.left {
				t.Fatalf("end at %d of %d, %v", cur.Offset, len(c.in), err)
			}
			write(t, path+".zst", zst(c.in))
			packedEnd, err := End(path + ".zst")
			if err != nil || packedEnd.Offset != cur.Offset || packedEnd.Head != cur.Head || packedEnd.Tail != cur.Tail {
				t.Fatalf("compressed: %+v, plain %+v, %v", packedEnd, cur, err)
			}
			// The same from a stat alone.
			stat, ok := Event{Class: Log, Path: path, Op: Seen, Size: int64(len(c.in))}.End()
			if !ok {
				t.Fatal("no cursor from the event")
			}
			appendTo(t, path, "\":0}\n{\"new\":1}\n")
			for _, cur := range []Cursor{cur, stat} {
				b := read(t, path, cur, Limits{})
				if n := len(b.Records); n == 0 || string(b.Records[n-1].Data) != `{"new":1}` || b.Reset {
					t.Fatalf("after growing: %q reset %v", datas(t, "", b.Records), b.Reset)
				}
				if c.left > 0 && c.left < 100 && len(b.Records) != 2 {
					t.Fatalf("the completed line is missing: %q", datas(t, "", b.Records))
				}
			}
		})
	}
}

func TestFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	write(t, path, "\nrubbish\n{\"a\":1}\n{\"b\":2}\n")
	if r, ok, err := First(path, Limits{}); err != nil || !ok || string(r.Data) != `{"a":1}` {
		t.Fatal(r, ok, err)
	}
	write(t, path, "{\"a\":1")
	if _, ok, err := First(path, Limits{}); err != nil || ok {
		t.Fatal(ok, err)
	}
}

func TestReadRangeStops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	write(t, path, "{\"a\":1}\n{\"b\":2}\n{\"c\":3}")
	var got []string
	collect := func(r Record) error { got = append(got, string(r.Data)); return nil }
	if err := ReadRange(path, 8, 1<<40, collect); err != nil || !reflect.DeepEqual(got, []string{`{"b":2}`, `{"c":3}`}) {
		t.Fatal(got, err)
	}
	stop := errors.New("stop")
	if err := ReadRange(path, 0, 100, func(Record) error { return stop }); err != stop {
		t.Fatal(err)
	}
}

func zst(s string) string {
	var b bytes.Buffer
	w, _ := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
	w.Write([]byte(s))
	w.Close()
	return b.String()
}
