package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/nrednav/cuid2"

	"github.com/happyd/happyd/config"
	"github.com/happyd/happyd/crypto"
)

// ensureRelayAccount makes happyd's own account on the embedded relay at the first start, and a fresh token when the relay's data
// was deleted. The account's secret (account.key) and what the daemon works with (access.key, data-key variant: it writes, and
// reads nothing back) lie in the data directory.
func (d *daemon) ensureRelayAccount() error {
	secretPath, accessPath := filepath.Join(d.cfg.DataDir, "account.key"), d.cfg.CredentialsPath()
	secret, err := loadSecret(secretPath)
	if err != nil {
		return fmt.Errorf("the relay's account: %w", err)
	}
	token, err := d.authenticate(secret)
	if err != nil {
		return fmt.Errorf("logging in to the embedded relay: %w", err)
	}
	public, _, err := crypto.ContentKeys(secret)
	if err != nil {
		return fmt.Errorf("the relay's account: %w", err)
	}
	creds, err := config.LoadCredentials(accessPath)
	switch {
	case err == nil && !creds.Legacy() && bytes.Equal(creds.PublicKey, public[:]):
	case err == nil || errors.Is(err, fs.ErrNotExist):
		creds = config.Credentials{PublicKey: public[:], MachineKey: make([]byte, crypto.KeySize)}
		if _, err := rand.Read(creds.MachineKey); err != nil {
			return fmt.Errorf("making a machine key: %w", err)
		}
	default:
		return err
	}
	if creds.Token == token {
		return nil
	}
	creds.Token = token
	if err := config.SaveCredentials(accessPath, creds); err != nil {
		return fmt.Errorf("saving the relay's credentials: %w", err)
	}
	return nil
}

// loadSecret reads the account's secret, and makes it when it does not exist. It has the form of Happy's agent.key.
func loadSecret(path string) ([]byte, error) {
	creds, err := config.LoadCredentials(path)
	if err == nil && creds.Legacy() {
		return creds.Secret, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	secret := make([]byte, crypto.KeySize)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	// The token is the relay's and is asked for anew at each start; the file's form wants one.
	if err := config.SaveCredentials(path, config.Credentials{Secret: secret, Token: "none"}); err != nil {
		return nil, err
	}
	return secret, nil
}

// authenticate proves the account to the relay and returns its token.
func (d *daemon) authenticate(secret []byte) (string, error) {
	challenge := make([]byte, 32)
	if _, err := rand.Read(challenge); err != nil {
		return "", err
	}
	public, signature := crypto.AuthChallenge(secret, challenge)
	b64 := base64.StdEncoding.EncodeToString
	body, err := json.Marshal(map[string]string{"publicKey": b64(public), "challenge": b64(challenge), "signature": b64(signature)})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+"/v1/auth", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var answer struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer); err != nil || answer.Token == "" {
		return "", fmt.Errorf("unexpected answer, status %d", resp.StatusCode)
	}
	return answer.Token, nil
}

// machineID is the happy CLI's id for this machine where there is one, so that the app shows all sessions of a machine together;
// else an id of our own, kept beside the credentials.
func (d *daemon) machineID() string {
	if !d.cfg.Server.IsEmbedded() {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(d.cfg.CredentialsPath()), "settings.json"))
		var s struct {
			MachineID string `json:"machineId"`
		}
		if err == nil && json.Unmarshal(data, &s) == nil && s.MachineID != "" {
			return s.MachineID
		}
	}
	path := filepath.Join(d.cfg.DataDir, "machine-id")
	if data, err := os.ReadFile(path); err == nil {
		if id := string(bytes.TrimSpace(data)); id != "" {
			return id
		}
	}
	id := cuid2.Generate()
	err := os.MkdirAll(d.cfg.DataDir, 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(id+"\n"), 0o600)
	}
	if err != nil {
		d.log.Warn("the machine's id cannot be kept", "error", err)
	}
	return id
}

func (d *daemon) machineMetadata() []byte {
	happy := d.happyHome()
	b, err := json.Marshal(map[string]any{
		"host": hostname(), "platform": runtime.GOOS, "happyCliVersion": "happyd " + versionString(),
		"happyHomeDir": happy, "homeDir": d.o.Home,
	})
	if err != nil {
		return nil
	}
	return b
}

// happyHome is the happy CLI's own directory.
func (d *daemon) happyHome() string {
	if dir := d.o.Env.Get("HAPPY_HOME_DIR"); dir != "" {
		return dir
	}
	return filepath.Join(d.o.Home, ".happy")
}
