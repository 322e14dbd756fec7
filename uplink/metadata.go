package uplink

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/happyd/happyd/socketio"
	"github.com/happyd/happyd/store"
)

const (
	// metaTimeout bounds one update: for a session that it does not know, the
	// server never answers.
	metaTimeout = 15 * time.Second
	// metaTries is how often one version is tried on one connection.
	metaTries = 3
)

// metaWorker brings the wanted metadata to the server, session by session.
func (u *Uplink) metaWorker(ctx context.Context) {
	tries := make(map[string]int) // of this worker; forgotten on success
	for {
		key, err := u.meta.next(ctx)
		if err != nil {
			return
		}
		conn := u.sock.current()
		if conn == nil {
			u.meta.done(key, false, 0) // asked for again on the next connection
			continue
		}
		err = u.updateMetadata(ctx, conn, key)
		switch {
		case err == nil:
			delete(tries, key)
			u.meta.done(key, false, 0)
		case conn.Err() != nil || ctx.Err() != nil:
			u.meta.done(key, false, 0)
		default:
			tries[key]++
			again := tries[key] < metaTries && !errors.Is(err, socketio.ErrTooLarge)
			if !again {
				delete(tries, key)
				u.log.Warn("updating a session's metadata", "session", key, "err", err)
			}
			u.meta.done(key, again, backoffBase<<tries[key])
		}
	}
}

// updateMetadata makes the server's metadata ours. Whatever another client
// wrote meanwhile is replaced: the log on this machine is the truth.
func (u *Uplink) updateMetadata(ctx context.Context, conn *socketio.Conn, key string) error {
	u.mu.Lock()
	u.session(key).dirty = false // set again by a change from here on
	u.mu.Unlock()
	err := u.exchangeMetadata(ctx, conn, key)
	if err != nil {
		u.mu.Lock()
		u.session(key).dirty = true
		u.mu.Unlock()
	}
	return err
}

func (u *Uplink) exchangeMetadata(ctx context.Context, conn *socketio.Conn, key string) error {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	for range metaTries {
		ses, ok, err := u.o.Scope.Lookup(key)
		if err != nil {
			return err
		}
		in, link := ses.Info, ses.Link
		if !ok || link.ServerID == "" || link.Gone || len(in.Metadata) == 0 || in.MetadataHash == link.MetadataAcked {
			return nil
		}
		args, err := conn.Call(ctx, "update-metadata", map[string]any{
			"sid":             link.ServerID,
			"metadata":        base64.StdEncoding.EncodeToString(in.Metadata),
			"expectedVersion": link.MetadataVersion,
		})
		if err != nil {
			return fmt.Errorf("sending: %w", err)
		}
		var answer struct {
			Result  string `json:"result"`
			Version int    `json:"version"`
		}
		if len(args) == 0 || json.Unmarshal(args[0], &answer) != nil {
			return errors.New("the server's answer cannot be read")
		}
		switch answer.Result {
		case "success", "version-mismatch":
		default:
			return fmt.Errorf("the server answered %q", shorten(answer.Result, 40))
		}
		err = u.o.Scope.UpdateLink(u.background(), key, in.Tag, func(l *store.Link) {
			l.MetadataVersion = answer.Version
			if answer.Result == "success" {
				l.MetadataAcked = in.MetadataHash
			}
		})
		if err != nil {
			return err
		}
	}
	return errors.New("the server's version keeps changing")
}
