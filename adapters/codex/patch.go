package codex

import (
	"fmt"
	"sort"
	"strings"

	"github.com/happyd/happyd/adapters"
)

// A change is one file of a patch, in the shape that the app's view reads.
type change struct {
	Type     string   `json:"type"`
	Add      *content `json:"add,omitempty"`
	Modify   *edit    `json:"modify,omitempty"`
	Delete   *content `json:"delete,omitempty"`
	Diff     string   `json:"diff,omitempty"`
	MovePath string   `json:"move_path,omitempty"`
}

type content struct {
	Content string `json:"content"`
}

type edit struct {
	Old string `json:"old_content"`
	New string `json:"new_content"`
}

// patchTool is a change of files under the name that the app knows.
func patchTool(id string, changes map[string]change) adapters.Tool {
	files := make([]string, 0, len(changes))
	for f := range changes {
		files = append(files, f)
	}
	sort.Strings(files)
	t := adapters.Tool{Call: id, Name: "CodexPatch", Title: "Apply patch", Args: adapters.Encode(map[string]any{"changes": changes})}
	switch len(files) {
	case 0:
	case 1:
		t.Title, t.Description = "Patch "+base(files[0]), files[0]
	default:
		t.Title, t.Description = fmt.Sprintf("Patch %d files", len(files)), strings.Join(files, ", ")
	}
	return t
}

// changesOf reads the changes of a finished patch: {path: {type, content | unified_diff, move_path}}, or the older {path: {add: {…}}}.
func changesOf(raw []byte) map[string]change {
	out := map[string]change{}
	adapters.ScanObject(raw, func(k, raw []byte) bool {
		file := filePath(adapters.String(append(append([]byte{'"'}, k...), '"')))
		v := adapters.Fields(raw, "type", "content", "unified_diff", "move_path", "add", "update", "delete")
		typ := adapters.String(v[0])
		for i, old := range []string{"add", "update", "delete"} {
			if typ == "" && v[4+i] != nil {
				typ = old
				copy(v[1:4], adapters.Fields(v[4+i], "content", "unified_diff", "move_path"))
			}
		}
		c := change{Type: typ}
		switch typ {
		case "add":
			c.Add = &content{adapters.String(v[1])}
		case "delete":
			c.Delete = &content{adapters.String(v[1])}
		default:
			c.Type, c.Diff, c.MovePath = "update", adapters.String(v[2]), filePath(adapters.String(v[3]))
		}
		out[file] = c
		return true
	})
	return out
}

// parsePatch reads the text form of a patch, as the model writes it. What it does not understand it leaves out.
func parsePatch(text string) map[string]change {
	out := map[string]change{}
	file := ""
	var c change
	var before, after []string
	flush := func() {
		if file == "" {
			return
		}
		switch c.Type {
		case "add":
			c.Add = &content{joinLines(after)}
		case "delete":
			c.Delete = &content{}
		default:
			c.Modify = &edit{joinLines(before), joinLines(after)}
		}
		out[file] = c
		file, before, after = "", nil, nil
	}
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if op, name, ok := patchHeader(line); ok {
			if op == "move" {
				c.MovePath = name
				continue
			}
			flush()
			file, c = name, change{Type: op}
			continue
		}
		switch {
		case file == "" || strings.HasPrefix(line, "*** ") || line == "":
		case strings.HasPrefix(line, "@@"):
			if len(before)+len(after) > 0 {
				before, after = append(before, "…"), append(after, "…")
			}
		case line[0] == '+':
			after = append(after, line[1:])
		case line[0] == '-':
			before = append(before, line[1:])
		case line[0] == ' ':
			before, after = append(before, line[1:]), append(after, line[1:])
		}
	}
	flush()
	return out
}

func patchHeader(line string) (op, file string, ok bool) {
	for _, h := range [...]struct{ prefix, op string }{
		{"*** Add File: ", "add"}, {"*** Update File: ", "update"}, {"*** Delete File: ", "delete"}, {"*** Move to: ", "move"},
	} {
		if f, ok := strings.CutPrefix(line, h.prefix); ok {
			return h.op, strings.TrimSpace(f), true
		}
	}
	return "", "", false
}

func joinLines(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// patchCommand finds a patch in a shell command that does nothing but apply it.
func patchCommand(raw []byte) (patch string, ok bool) {
	var argv []string
	adapters.Elements(raw, func(_ int, e []byte) bool {
		argv = append(argv, adapters.String(e))
		return true
	})
	if len(argv) == 2 && argv[0] == "apply_patch" {
		return argv[1], true
	}
	script := shellText(raw)
	if rest, ok := strings.CutPrefix(strings.TrimSpace(script), "apply_patch <<"); ok {
		i, j := strings.Index(rest, "*** Begin Patch"), strings.LastIndex(rest, "*** End Patch")
		if i >= 0 && j > i && strings.Count(rest[j:], "\n") <= 2 {
			return rest[i:j], true
		}
	}
	return "", false
}
