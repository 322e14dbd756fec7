package harness

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/happyd/happyd/config"
	"github.com/happyd/happyd/crypto"
	"github.com/happyd/happyd/uplink/fakehappy"
)

// Message is one message as a server holds it.
type Message struct {
	Seq     int64
	LocalID string
	Sealed  []byte
}

// Sealed is a session as a server holds it.
type Sealed struct {
	ID       string
	Key      string // dataEncryptionKey, base64; "" for a legacy login
	Metadata string // base64
	Active   bool
	Seq      int64
	Messages []Message
}

// Server is where a daemon delivers to.
type Server interface {
	// Sessions lists the sessions in the order of their creation where the server tells it, with their messages if asked.
	Sessions(messages bool) ([]Sealed, error)
}

// Login makes the credentials of a data-key login, and the account's secret.
func Login(tb testing.TB, token string) (config.Credentials, []byte) {
	tb.Helper()
	secret, machine := make([]byte, crypto.KeySize), make([]byte, crypto.KeySize)
	_, _ = rand.Read(secret)
	_, _ = rand.Read(machine)
	public, _, err := crypto.ContentKeys(secret)
	if err != nil {
		tb.Fatal(err)
	}
	return config.Credentials{Token: token, PublicKey: public[:], MachineKey: machine}, secret
}

// Fake is a fake Happy server in this process.
type Fake struct{ *fakehappy.Server }

// Sessions implements Server.
func (f Fake) Sessions(bool) ([]Sealed, error) {
	var out []Sealed
	for _, s := range f.Server.Sessions() {
		o := Sealed{ID: s.ID, Key: s.Key, Metadata: s.Metadata, Active: s.Active, Seq: int64(len(s.Messages))}
		for _, m := range s.Messages {
			o.Messages = append(o.Messages, Message{Seq: m.Seq, LocalID: m.LocalID, Sealed: m.Content})
		}
		out = append(out, o)
	}
	return out, nil
}

// Relay reads the embedded relay of a machine's running daemon over HTTP, as another client of the account.
type Relay struct {
	machine *Machine
	url     string
	starts  int // of the daemon that url belongs to
	token   string
	secret  []byte
}

// relayHTTP keeps no connections: the relay comes and goes with its daemon.
var relayHTTP = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// login proves the account to the relay of the daemon's present life.
func (r *Relay) login() error {
	if r.starts == r.machine.Starts && r.url != "" {
		return nil
	}
	doc, err := r.machine.Status()
	if err != nil {
		return err
	}
	creds, err := config.LoadCredentials(filepath.Join(r.machine.DataDir(), "account.key"))
	if err != nil {
		return err
	}
	r.secret = creds.Secret
	challenge := make([]byte, 32)
	_, _ = rand.Read(challenge)
	public, signature := crypto.AuthChallenge(r.secret, challenge)
	body, _ := json.Marshal(map[string][]byte{"publicKey": public, "challenge": challenge, "signature": signature})
	resp, err := relayHTTP.Post(doc.Server.URL+"/v1/auth", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var in struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&in); err != nil || in.Token == "" {
		return fmt.Errorf("the relay answered a login with status %d", resp.StatusCode)
	}
	r.url, r.token, r.starts = doc.Server.URL, in.Token, r.machine.Starts
	return nil
}

func (r *Relay) get(path string, into any) error {
	req, err := http.NewRequest(http.MethodGet, r.url+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	resp, err := relayHTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return fmt.Errorf("GET %s: status %d: %s", path, resp.StatusCode, b)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// listed is a session in the relay's list.
type listed struct {
	ID        string  `json:"id"`
	Seq       int64   `json:"seq"`
	Metadata  string  `json:"metadata"`
	Key       *string `json:"dataEncryptionKey"`
	Active    bool    `json:"active"`
	CreatedAt int64   `json:"createdAt"`
}

// Sessions implements Server.
func (r *Relay) Sessions(messages bool) ([]Sealed, error) {
	if err := r.login(); err != nil {
		return nil, err
	}
	var list struct {
		Sessions []listed `json:"sessions"`
	}
	if err := r.get("/v1/sessions", &list); err != nil {
		return nil, err
	}
	slices.Reverse(list.Sessions)
	slices.SortStableFunc(list.Sessions, func(a, b listed) int {
		return int(a.CreatedAt - b.CreatedAt)
	})
	var out []Sealed
	for _, s := range list.Sessions {
		o := Sealed{ID: s.ID, Metadata: s.Metadata, Active: s.Active, Seq: s.Seq}
		if s.Key != nil {
			o.Key = *s.Key
		}
		if messages {
			var err error
			if o.Messages, err = r.messages(s.ID); err != nil {
				return nil, err
			}
		}
		out = append(out, o)
	}
	return out, nil
}

func (r *Relay) messages(id string) (out []Message, err error) {
	for after := int64(0); ; {
		var page struct {
			Messages []struct {
				Seq     int64  `json:"seq"`
				LocalID string `json:"localId"`
				Content struct {
					C string `json:"c"`
				} `json:"content"`
			} `json:"messages"`
			HasMore bool `json:"hasMore"`
		}
		if err := r.get(fmt.Sprintf("/v3/sessions/%s/messages?after_seq=%d&limit=500", id, after), &page); err != nil {
			return nil, err
		}
		for _, m := range page.Messages {
			sealed, err := base64.StdEncoding.DecodeString(m.Content.C)
			if err != nil {
				return nil, fmt.Errorf("message %d: %w", m.Seq, err)
			}
			out = append(out, Message{Seq: m.Seq, LocalID: m.LocalID, Sealed: sealed})
			after = m.Seq
		}
		if !page.HasMore {
			return out, nil
		}
	}
}
