package uplink

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/happyd/happyd/store"
)

// maxAnswer bounds what is read of an answer. Fifty stored messages are
// answered with some 10 KiB.
const maxAnswer = 4 << 20

// api is the HTTP half of the wire. It judges nothing: it returns what came.
type api struct {
	base    *url.URL
	http    *http.Client
	client  string // X-Happy-Client
	timeout time.Duration
}

// statusError is an answer other than 2xx.
type statusError struct {
	code  int
	after time.Duration // Retry-After, 0 when absent
	text  string        // the server's own words, shortened; empty if it has none
	json  bool          // the body was a JSON object, as Happy's are
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("the server answered %d %s", e.code, http.StatusText(e.code))
	if e.text != "" {
		s += fmt.Sprintf(" (%s)", e.text)
	}
	return s
}

// errNotHappy is an answer that no Happy server gives.
type errNotHappy struct{ why string }

func (e *errNotHappy) Error() string { return "not a Happy server: " + e.why }

// call sends one request and decodes the answer into out. The error is a
// *statusError, an *errNotHappy, or one of the network's.
func (a *api) call(ctx context.Context, token, method, path string, body []byte, out any) error {
	// The time for the body assumes 16 KiB/s, a bad mobile uplink.
	timeout := a.timeout + time.Duration(len(body)/(16<<10))*time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var rd io.Reader
	if body != nil {
		rd = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base.JoinPath(path).String(), rd)
	if err != nil {
		return fmt.Errorf("building the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("X-Happy-Client", a.client)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return asStatusError(resp, answer) // whatever of the body arrived
	}
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return &errNotHappy{fmt.Sprintf("%s %s was answered with %s", method, path, describe(resp, answer))}
	}
	return nil
}

func asStatusError(resp *http.Response, answer []byte) *statusError {
	e := &statusError{code: resp.StatusCode, after: retryAfter(resp.Header.Get("Retry-After"))}
	var body struct {
		Error   any `json:"error"`
		Message any `json:"message"`
	}
	if json.Unmarshal(answer, &body) == nil {
		e.json = true
		for _, v := range []any{body.Message, body.Error} {
			if s, ok := v.(string); ok && s != "" && e.text == "" {
				e.text = shorten(s, 120)
			}
		}
	}
	return e
}

// retryAfter reads seconds or an HTTP date.
func retryAfter(h string) time.Duration {
	if h == "" {
		return 0
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(h), 10, 32); err == nil {
		return max(0, time.Duration(n)*time.Second)
	}
	if t, err := http.ParseTime(h); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}

func describe(resp *http.Response, answer []byte) string {
	kind := resp.Header.Get("Content-Type")
	if kind == "" {
		kind = "no content type"
	}
	return fmt.Sprintf("%d bytes of %s", len(answer), shorten(kind, 40))
}

// shorten makes server text fit for a log line.
func shorten(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// remoteSession is a session as the server returns it.
type remoteSession struct {
	ID              string  `json:"id"`
	Metadata        string  `json:"metadata"`
	MetadataVersion int     `json:"metadataVersion"`
	Key             *string `json:"dataEncryptionKey"`
}

// createSession creates the session or returns the one that has the tag.
func (a *api) createSession(ctx context.Context, token string, info store.SessionInfo) (remoteSession, error) {
	var key *string
	if info.Wrapped != "" {
		key = &info.Wrapped
	}
	body, err := json.Marshal(map[string]any{
		"tag":               info.Tag,
		"metadata":          base64.StdEncoding.EncodeToString(info.Metadata),
		"dataEncryptionKey": key,
	})
	if err != nil {
		return remoteSession{}, err
	}
	var out struct {
		Session *remoteSession `json:"session"`
	}
	if err := a.call(ctx, token, http.MethodPost, "/v1/sessions", body, &out); err != nil {
		return remoteSession{}, err
	}
	if out.Session == nil || out.Session.ID == "" {
		return remoteSession{}, &errNotHappy{"POST /v1/sessions returned no session"}
	}
	return *out.Session, nil
}

// postMessages sends a batch and returns the highest seq it was stored under.
func (a *api) postMessages(ctx context.Context, token, serverID string, body []byte, batch []store.Entry) (int64, error) {
	var out struct {
		Messages []struct {
			LocalID string `json:"localId"`
			Seq     int64  `json:"seq"`
		} `json:"messages"`
	}
	path := "/v3/sessions/" + url.PathEscape(serverID) + "/messages"
	if err := a.call(ctx, token, http.MethodPost, path, body, &out); err != nil {
		return 0, err
	}
	stored := make(map[string]bool, len(out.Messages))
	var seq int64
	for _, m := range out.Messages {
		stored[m.LocalID] = true
		seq = max(seq, m.Seq)
	}
	// Only what the server names is forgotten here: a 200 of something that is
	// no Happy server must not empty the outbox.
	for _, e := range batch {
		if !stored[e.LocalID] {
			return 0, &errNotHappy{"the answer to stored messages does not name them all"}
		}
	}
	return seq, nil
}

// encodeBatch is the body of postMessages; local ids need no escaping beyond
// JSON's own.
func encodeBatch(batch []store.Entry) ([]byte, error) {
	size := 16
	for i := range batch {
		size += base64.StdEncoding.EncodedLen(len(batch[i].Sealed)) + len(batch[i].LocalID) + 32
	}
	b := make([]byte, 0, size)
	b = append(b, `{"messages":[`...)
	for i := range batch {
		id, err := json.Marshal(batch[i].LocalID)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"content":"`...)
		b = base64.StdEncoding.AppendEncode(b, batch[i].Sealed)
		b = append(b, `","localId":`...)
		b = append(b, id...)
		b = append(b, '}')
	}
	return append(b, `]}`...), nil
}

// createMachine registers the machine or returns the one that has the id. An
// id of another account is answered with 500.
func (a *api) createMachine(ctx context.Context, token, id string, metadata []byte, key string) error {
	var wrapped *string
	if key != "" {
		wrapped = &key
	}
	body, err := json.Marshal(map[string]any{
		"id":                id,
		"metadata":          base64.StdEncoding.EncodeToString(metadata),
		"dataEncryptionKey": wrapped,
	})
	if err != nil {
		return err
	}
	var out struct {
		Machine *struct {
			ID string `json:"id"`
		} `json:"machine"`
	}
	if err := a.call(ctx, token, http.MethodPost, "/v1/machines", body, &out); err != nil {
		return err
	}
	if out.Machine == nil || out.Machine.ID == "" {
		return &errNotHappy{"POST /v1/machines returned no machine"}
	}
	return nil
}

// machineKnown says whether the machine id is the account's.
func (a *api) machineKnown(ctx context.Context, token, id string) (bool, error) {
	var out map[string]any
	err := a.call(ctx, token, http.MethodGet, "/v1/machines/"+url.PathEscape(id), nil, &out)
	var se *statusError
	if errors.As(err, &se) && se.code == http.StatusNotFound && se.json {
		return false, nil
	}
	return err == nil, err
}

// listMachines is the cheapest question that only an accepted token may ask.
func (a *api) listMachines(ctx context.Context, token string) error {
	var out any
	return a.call(ctx, token, http.MethodGet, "/v1/machines", nil, &out)
}
