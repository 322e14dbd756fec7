package watch

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Real logs, where they are at hand, give exactly the lines that are JSON objects.
func TestCorpus(t *testing.T) {
	const corpus = "../../shared"
	if _, err := os.Stat(corpus); err != nil {
		t.Skip("no corpus beside the repository")
	}
	files, records := 0, 0
	var total Skips
	err := filepath.WalkDir(corpus, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(path, ".jsonl") && !strings.HasSuffix(path, ".jsonl.zst") {
			return err
		}
		var got []Record
		for c, more := (Cursor{}), true; more; {
			b, err := Read(path, c, Limits{AcceptTail: true})
			if err != nil {
				t.Errorf("%s: %v", path, err)
				return nil
			}
			got = append(got, b.Records...)
			total.Add(b.Skipped)
			c, more = b.Cursor, b.More
		}
		files++
		records += len(got)
		if strings.HasSuffix(path, ".zst") {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		want := 0
		for line := range bytes.Lines(raw) {
			line = bytes.Trim(bytes.TrimPrefix(line, bom), "\x00 \t\r\n")
			if len(line) > 0 && line[0] == '{' && json.Valid(line) {
				want++
			}
		}
		if len(got) != want {
			t.Errorf("%s: %d records, %d lines are objects", path, len(got), want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files, %d records, skipped %+v", files, records, total)
}
