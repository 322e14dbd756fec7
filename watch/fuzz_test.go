package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/happyd/happyd/internal/rapidseed"
)

// failer is what testing and rapid have in common.
type failer interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// readAll reads until nothing more comes.
func readAll(t failer, path string, c *Cursor, l Limits, skips *Skips) []Record {
	var out []Record
	for {
		b, err := Read(path, *c, l)
		if err != nil {
			t.Fatal(err)
		}
		if b.Reset {
			t.Fatalf("reset of a file that only grew, at %+v", *c)
		}
		if b.Cursor.Offset < c.Offset {
			t.Fatalf("cursor went back from %d to %d", c.Offset, b.Cursor.Offset)
		}
		out = append(out, b.Records...)
		skips.Add(b.Skipped)
		*c = b.Cursor
		if !b.More {
			return out
		}
	}
}

// inPieces writes data to a file piece by piece, reads after each, and compares with reading it in one go.
func inPieces(t failer, dir string, data []byte, cuts []int, l Limits) {
	one, grow := filepath.Join(dir, "one"), filepath.Join(dir, "grow")
	if err := os.WriteFile(one, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var c Cursor
	var wantSkips, skips Skips
	want := readAll(t, one, &c, Limits{MaxLine: l.MaxLine}, &wantSkips)
	for i, r := range want {
		if i > 0 && r.Offset < want[i-1].Next {
			t.Fatalf("record at %d begins before the end %d of the last", r.Offset, want[i-1].Next)
		}
		if !r.Oversize && string(data[r.Offset:r.Offset+r.Size]) != string(r.Data) || r.Next < r.Offset+r.Size {
			t.Fatalf("record at %d is not in the file", r.Offset)
		}
	}
	f, err := os.Create(grow)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got []Record
	c = Cursor{}
	at := 0
	for _, n := range append(cuts, len(data)) {
		n = min(at+n, len(data))
		if _, err := f.Write(data[at:n]); err != nil {
			t.Fatal(err)
		}
		at = n
		got = append(got, readAll(t, grow, &c, l, &skips)...)
	}
	for i := range got {
		got[i].Path = one
	}
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		t.Fatalf("in pieces %d records, in one go %d", len(got), len(want))
	}
	if skips != wantSkips {
		t.Fatalf("in pieces %+v skipped, in one go %+v", skips, wantSkips)
	}
}

// Use -fuzzminimizetime 10x: each try reads files, so that minimizing for a minute, the default, is most of a short run.
func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n{\"b\":\"x{\"c\":2}\n\x00\x00{\"d\":3}\r\n\ufeff{\"e\":4}\n[1]\n{\"half"), []byte{3, 9, 1}, byte(0))
	f.Add([]byte("{\"a\":1}{\"b\":2}\n{\"long\":\""+strings.Repeat("y", 300)+"\"}\n\n"), []byte{200, 100}, byte(1))
	f.Add([]byte(strings.Repeat("\x00", 200)+"{\"a\":1}"+strings.Repeat("\x00", 200)+"{\"b\":{\"c\":[]}}\n"), []byte{1, 1, 1}, byte(1))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data, cuts []byte, mode byte) {
		l := Limits{MaxRecords: int(mode>>1) % 4, MaxBytes: int64(mode>>3) * 16}
		if mode&1 != 0 {
			l.MaxLine = 100
		}
		var at []int
		for _, c := range cuts[:min(len(cuts), 20)] {
			at = append(at, int(c))
		}
		inPieces(t, dir, data, at, l)
	})
}

// Random logs with all that goes wrong, random cuts: every record exactly once, whatever stands between them.
func TestEveryRecordOnce(t *testing.T) {
	dir := t.TempDir()
	junk := rapid.SampledFrom([]string{"", "\n", "\r\n", "[1,2]\n", "42\n", "rubbish\n", "\x00\x00\x00", "\x00\x00\n", "\ufeff", "  ",
		"{\"torn\":\"by a kill\n", "{\"stub\":\"x", "{\"stub\":{\"deep\":[1,{\"type\":\"x", "{\"stub\":1,"})
	rapid.Check(t, func(t *rapid.T) {
		var file strings.Builder
		var want []string
		end := "\n"
		for i := range rapid.IntRange(0, 12).Draw(t, "records") {
			// Writers append objects: behind a lost newline comes another one, whole or torn, or a block of NULs.
			if j := junk.Draw(t, "junk"); end != "" || j == "" || j[0] == '{' || j[0] == 0 {
				file.WriteString(j)
			}
			text := rapid.SampledFrom([]string{"", "plain", `quoted \"{\"x\":1}\"`, "\u00e9\u2028", `\\`, strings.Repeat("long", 50)}).Draw(t, "text")
			rec := fmt.Sprintf(`{"i":%d,"text":"%s","in":[{"a":{}}]}`, i, text)
			want = append(want, rec)
			file.WriteString(rec)
			end = rapid.SampledFrom([]string{"\n", "\r\n", "\n\n", "", "\x00\n"}).Draw(t, "end")
			file.WriteString(end)
		}
		file.WriteString("\n")
		data := []byte(file.String())
		cuts := rapid.SliceOfN(rapid.IntRange(0, 80), 0, 12).Draw(t, "cuts")
		inPieces(t, dir, data, cuts, Limits{MaxRecords: rapid.IntRange(0, 3).Draw(t, "max")})
		path := filepath.Join(dir, "one")
		b, err := Read(path, Cursor{}, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, r := range b.Records {
			got = append(got, string(r.Data))
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("%q:\ngot  %q\nwant %q", data, got, want)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), "a.jsonl")
	line := `{"parentUuid":null,"type":"user","message":{"role":"user","content":"` + strings.Repeat(`Some text, a \"quote\" and\na line. `, 30) + `"},"n":[1,2,3]}` + "\n"
	write(b, path, strings.Repeat(line, 20_000))
	fi, _ := os.Stat(path)
	b.SetBytes(fi.Size())
	b.ReportAllocs()
	for b.Loop() {
		var c Cursor
		n := 0
		for more := true; more; {
			batch, err := Read(path, c, Limits{})
			if err != nil {
				b.Fatal(err)
			}
			n += len(batch.Records)
			c, more = batch.Cursor, batch.More
		}
		if n != 20_000 {
			b.Fatal(n)
		}
	}
}

// The cost of one look at a log that grew by one record.
func BenchmarkReadAppended(b *testing.B) {
	path := filepath.Join(b.TempDir(), "a.jsonl")
	write(b, path, logOf(20_000))
	c, err := End(path)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		appendTo(b, path, "{\"type\":\"user\",\"text\":\"hello\"}\n")
		batch, err := Read(path, c, Limits{})
		if err != nil || len(batch.Records) != 1 {
			b.Fatal(err, len(batch.Records))
		}
		c = batch.Cursor
	}
}
