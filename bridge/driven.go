package bridge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
)

// happyCommand matches the command line of Happy's own client, which starts agents itself.
var happyCommand = regexp.MustCompile(`(^|[/\\ ])(happy|happy-coder|happy-cli|happy-dev)(\.mjs|\.cjs|\.js)?( |$)`)

// driven says whether Happy itself drives the session: then its own client mirrors it already. sure is false while the proof
// may still come.
func (a *actor) driven(entrypoint string) (driven, sure bool) {
	if entrypoint == "remote_mobile" {
		return true, true
	}
	if a.b.happySessions()[a.id] {
		return true, true
	}
	pr := a.b.processOf(a.p, a.id)
	if !pr.Known || !pr.Alive {
		return false, false
	}
	for _, cmd := range a.b.o.OwnParents(pr.PID) {
		if happyCommand.MatchString(cmd) {
			return true, true
		}
	}
	return false, false
}

// happySessions are the source sessions that the happy CLI keeps in its sessions.json.
func (b *Bridge) happySessions() map[string]bool {
	if b.o.HappyHome == "" {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(b.o.HappyHome, "sessions.json"))
	if err != nil {
		return nil
	}
	var f struct {
		Sessions map[string]struct {
			Metadata struct {
				Claude string `json:"claudeSessionId"`
				Codex  string `json:"codexThreadId"`
			} `json:"metadata"`
		} `json:"sessions"`
	}
	if json.Unmarshal(data, &f) != nil {
		return nil
	}
	out := map[string]bool{}
	for _, s := range f.Sessions {
		for _, id := range []string{s.Metadata.Claude, s.Metadata.Codex} {
			if id != "" {
				out[id] = true
			}
		}
	}
	return out
}
