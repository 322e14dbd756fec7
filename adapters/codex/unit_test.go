package codex

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/watch"
)

const (
	idRoot  = "019b7db8-7800-7000-8000-000000000001"
	idChild = "019b7db8-7be8-7000-8000-000000000002"
	idGrand = "019b7db8-7fd0-7000-8000-000000000003"
)

func rec(s string) func() (watch.Record, bool) {
	return func() (watch.Record, bool) { return watch.Record{Data: []byte(s)}, s != "" }
}

func metaLine(fields string) string {
	return `{"timestamp":"2026-01-02T08:00:00.000Z","type":"session_meta","payload":{` + fields + `}}`
}

func spawnedBy(parent string, depth string) string {
	return `"source":{"subagent":{"thread_spawn":{"parent_thread_id":"` + parent + `","depth":` + depth + `}}}`
}

func TestParseName(t *testing.T) {
	for _, tc := range []struct{ rel, key string }{
		{"2026/01/02/rollout-2026-01-02T08-00-00-" + idRoot + ".jsonl", idRoot},
		{`2026\01\02\rollout-2026-01-02T08-00-00-` + idRoot + ".jsonl", idRoot},
		{"rollout-2026-01-02T08-00-00-" + idRoot + ".jsonl.zst", idRoot},
		{"rollout-x-" + strings.ToUpper(idRoot) + ".jsonl", idRoot},
		{"rollout-2026-01-02T08-00-00-" + idRoot + "_" + idChild + ".jsonl", idRoot + "_" + idChild},
		{".rollout-2026-01-02T08-00-00-" + idRoot + ".jsonl.paginated.tmp", ""},
		{".rollout-materialize-abcdef", ""},
		{"rollout-2026-01-02T08-00-00-" + idRoot + ".json", ""},
		{"rollout-2026-01-02.jsonl", ""},
		{"history.jsonl", ""},
	} {
		n, ok := parseName(tc.rel)
		if ok != (tc.key != "") || ok && n.key() != tc.key {
			t.Errorf("%s: %q, %v", tc.rel, n.key(), ok)
		}
	}
}

func TestRoots(t *testing.T) {
	roots := NewProvider().Roots("/h")
	if len(roots) != 3 || roots[0].Path != "/h/sessions" || roots[1].Path != "/h/archived_sessions" || roots[2].Path != "/h" {
		t.Fatalf("%+v", roots)
	}
	for rel, want := range map[string]bool{"2026": true, "2026/01": true, "2026/01/02": true, "2026/01/02/x": false, "backup": false, "": false} {
		if roots[0].Descend(rel) != want {
			t.Errorf("descend %q", rel)
		}
	}
	if roots[2].Classify("session_index.jsonl") != watch.Log || roots[2].Classify("history.jsonl") != watch.Ignore || roots[2].Descend("sessions") {
		t.Error("the index root takes more than the index")
	}
}

func TestLocate(t *testing.T) {
	name := func(id string) string { return "2026/01/02/rollout-2026-01-02T08-00-00-" + id + ".jsonl" }
	root := watch.Root{Name: rootSessions}
	for _, tc := range []struct {
		name, id, first string
		want            adapters.Place
		ok              bool
	}{
		{"user", idRoot, metaLine(`"id":"` + idRoot + `","source":"cli"`), adapters.Place{Session: idRoot, Key: idRoot}, true},
		{"empty file", idRoot, "", adapters.Place{}, false},
		{"no meta", idRoot, `{"timestamp":"2026-01-02T08:00:00.000Z","type":"event_msg","payload":{"type":"task_started"}}`, adapters.Place{}, false},
		{"first layout", idRoot, `{"id":"` + idRoot + `","timestamp":"2026-01-02T08:00:00.000Z","instructions":null}`, adapters.Place{Session: idRoot, Key: idRoot}, true},
		{"child", idChild, metaLine(`"id":"` + idChild + `",` + spawnedBy(idRoot, "1")), adapters.Place{Session: idRoot, Stream: idChild, Group: idRoot, Key: idChild}, true},
		{"root named", idGrand, metaLine(`"id":"` + idGrand + `","session_id":"` + idRoot + `",` + spawnedBy(idChild, "2")), adapters.Place{Session: idRoot, Stream: idGrand, Group: idChild, Key: idGrand}, true},
		{"own root", idChild, metaLine(`"id":"` + idChild + `","session_id":"` + idChild + `",` + spawnedBy(idRoot, "1")), adapters.Place{Session: idRoot, Stream: idChild, Group: idRoot, Key: idChild}, true},
		{"root unknown", idGrand, metaLine(`"id":"` + idGrand + `",` + spawnedBy(idChild, "2")), adapters.Place{}, false},
		{"review without parent", idChild, metaLine(`"id":"` + idChild + `","source":{"subagent":"review"}`), adapters.Place{Session: idChild, Stream: idChild, Key: idChild}, true},
		{"guardian", idChild, metaLine(`"id":"` + idChild + `","session_id":"` + idRoot + `","parent_thread_id":"` + idRoot + `","source":{"subagent":{"other":"guardian"}}`), adapters.Place{Session: idRoot, Stream: idChild, Group: idRoot, Key: idChild}, true},
		{"rewritten long ago", idRoot, metaLine(`"id":"` + idRoot + `","cli_version":"0.115.0","history_mode":"paginated"`), adapters.Place{Session: idRoot, Key: idRoot, Rebase: true}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := NewProvider().Locate(root, name(tc.id), rec(tc.first))
			if ok != tc.ok || got != tc.want {
				t.Errorf("%+v, %v", got, ok)
			}
		})
	}
	p := NewProvider()
	grand := metaLine(`"id":"` + idGrand + `",` + spawnedBy(idChild, "2"))
	if _, ok := p.Locate(root, name(idGrand), rec(grand)); ok {
		t.Fatal("located without a root")
	}
	p.Locate(root, name(idChild), rec(metaLine(`"id":"`+idChild+`",`+spawnedBy(idRoot, "1"))))
	if pl, ok := p.Locate(root, name(idGrand), rec(grand)); !ok || pl.Session != idRoot {
		t.Errorf("once its parent is known: %+v, %v", pl, ok)
	}
	p.Locate(root, name(idRoot), rec(metaLine(`"id":"`+idRoot+`","cli_version":"0.171.0"`)))
	if pl, _ := p.Locate(root, name(idRoot), rec(metaLine(`"id":"`+idRoot+`","cli_version":"0.171.0","history_mode":"paginated"`))); !pl.Rebase {
		t.Error("a rewritten file is not recognised")
	}
	if pl, ok := p.Locate(watch.Root{Name: rootIndex}, IndexName, nil); !ok || pl.Kind != adapters.KindIndex {
		t.Errorf("index: %+v, %v", pl, ok)
	}
}

func TestParseIndexLine(t *testing.T) {
	id, name, at, ok := ParseIndexLine([]byte(`{"id":"` + idRoot + `","thread_name":" Hedge ","updated_at":"2026-01-02T08:00:00.5Z"}`))
	if id != idRoot || name != "Hedge" || at != 1767340800500 || !ok {
		t.Errorf("%s %q %d %v", id, name, at, ok)
	}
	for _, bad := range []string{`{}`, `{"id":"x","thread_name":"y"}`, `{"id":"` + idRoot + `","thread_name":""}`, `[`} {
		if _, _, _, ok := ParseIndexLine([]byte(bad)); ok {
			t.Errorf("taken: %s", bad)
		}
	}
}

func TestShellText(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`["bash","-lc","ls | wc"]`, "ls | wc"},
		{`["/usr/bin/zsh","-c","echo 'a'"]`, "echo 'a'"},
		{`["powershell.exe","-Command","dir"]`, "dir"},
		{`["git","commit","-m","two words"]`, "git commit -m 'two words'"},
		{`["echo","it's"]`, `echo 'it'\''s'`},
		{`"ls"`, "ls"},
		{`"/bin/bash -lc 'echo '\\''x'\\'''"`, "echo 'x'"},
		{`"bash -lc \"printf \\\"\\\\x00\\\"\""`, `printf "\x00"`},
		{`"bash -lc true"`, "true"},
		{`"bash script.sh"`, "bash script.sh"},
		{`null`, ""}, {``, ""}, {`7`, ""},
	} {
		if got := shellText([]byte(tc.in)); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.in, got, tc.want)
		}
	}
}

func TestPatchForms(t *testing.T) {
	for _, tc := range []struct{ name, got, want string }{
		{"text", enc(parsePatch("*** Begin Patch\r\n*** Update File: a b.go\r\n@@ func\r\n x\r\n-y\r\n+z\r\n*** End of File\r\n*** End Patch")),
			`{"a b.go":{"type":"update","modify":{"old_content":"x\ny\n","new_content":"x\nz\n"}}}`},
		{"nothing", enc(parsePatch("no patch at all")), `{}`},
		{"older items", enc(changesOf([]byte(`{"/a":{"add":{"content":"x"}},"/b":{"delete":{"content":"y"}},"/c":{"update":{"unified_diff":"@@","move_path":"/d"}}}`))),
			`{"/a":{"type":"add","add":{"content":"x"}},"/b":{"type":"delete","delete":{"content":"y"}},"/c":{"type":"update","diff":"@@","move_path":"/d"}}`},
	} {
		if tc.got != tc.want {
			t.Errorf("%s:\n got  %s\n want %s", tc.name, tc.got, tc.want)
		}
	}
	if p, ok := patchCommand([]byte(`["bash","-lc","apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: x\n*** End Patch\nEOF\n"]`)); !ok || len(parsePatch(p)) != 1 {
		t.Errorf("here document: %q, %v", p, ok)
	}
	if _, ok := patchCommand([]byte(`["bash","-lc","cd a && ls"]`)); ok {
		t.Error("an ordinary command is no patch")
	}
}

func enc(v any) string { b, _ := json.Marshal(v); return string(b) }

func TestSpawnToolHidesCiphertext(t *testing.T) {
	secret := "gAAAAA" + strings.Repeat("x", 200)
	tool := spawnTool("c", "collaboration", []byte(`{"task_name":"dig","message":"`+secret+`"}`))
	if strings.Contains(string(tool.Args), secret) || tool.Description == secret || tool.Title != "dig" {
		t.Errorf("%+v", tool)
	}
}

func TestTokens(t *testing.T) {
	if u := tokens(1000, 400, 7, 0); u.InputTokens != 600 || *u.CacheReadInputTokens != 400 || u.ContextWindow != nil {
		t.Errorf("%+v", u)
	}
	for _, n := range [][4]int64{{0, 0, 0, 100}, {-1, 0, 1, 0}, {1, 0, 1 << 60, 0}} {
		if tokens(n[0], n[1], n[2], n[3]) != nil {
			t.Errorf("%v is reported", n)
		}
	}
}

func TestBornAt(t *testing.T) {
	if got := bornAt(idRoot); got != 1767340800000 {
		t.Errorf("%d", got)
	}
	if bornAt("0b5a3c1e-1111-4222-8333-444455556666") != 0 || bornAt("5") != 0 {
		t.Error("only version 7 tells a time")
	}
}
