package bridge

import (
	"context"
	"encoding/json"
	"fmt"
)

// A session's files are stored beside its state, which is written with every batch: hundreds of subagents have hundreds of files,
// and their list changes only when one is new. It is needed when the session must be read again from its beginning, and to see when
// it last grew; one that a crash forgets is met again when it grows.

// filesValue is the store's name for the files of a session.
func (a *actor) filesValue() string { return "files/" + a.key }

func (a *actor) loadFiles() error {
	a.saved.Files = map[string]string{}
	raw, ok, err := a.b.o.Scope.Value(a.filesValue())
	if err != nil || !ok {
		return err
	}
	plain, err := a.b.o.Account.State().Open(raw)
	if err != nil {
		return fmt.Errorf("open the list of files: %w", err)
	}
	return json.Unmarshal(plain, &a.saved.Files)
}

func (a *actor) keepFile(key, path string) {
	if a.saved.Files[key] != path {
		a.saved.Files[key], a.newFiles = path, true
	}
}

// storeFiles follows a batch that is durable.
func (a *actor) storeFiles(ctx context.Context) {
	if !a.newFiles {
		return
	}
	plain, err := json.Marshal(a.saved.Files)
	if err == nil {
		plain, err = a.b.o.Account.State().Seal(plain)
	}
	if err == nil {
		err = a.b.o.Scope.SetValue(ctx, a.filesValue(), plain)
	}
	if err != nil {
		if ctx.Err() == nil {
			a.b.log.Warn("storing a session's list of files", "session", a.key, "error", err)
		}
		return // with the next batch
	}
	a.newFiles = false
}
