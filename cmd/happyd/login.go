package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/happyd/happyd/config"
	"github.com/happyd/happyd/crypto"
	"github.com/happyd/happyd/internal/lock"
)

// login reads the credentials; those of the embedded relay are made when they are missing.
func (d *daemon) login() (config.Credentials, *crypto.Account, error) {
	if d.cfg.Server.IsEmbedded() {
		if err := d.ensureRelayAccount(); err != nil {
			return config.Credentials{}, nil, err
		}
	}
	creds, err := config.LoadCredentials(d.cfg.CredentialsPath())
	if err != nil {
		return creds, nil, err
	}
	account, err := accountOf(creds)
	if err != nil {
		return creds, nil, fmt.Errorf("credentials: %w", err)
	}
	return creds, account, nil
}

func accountOf(c config.Credentials) (*crypto.Account, error) {
	if c.Legacy() {
		return crypto.NewLegacyAccount(c.Secret)
	}
	return crypto.NewDataKeyAccount(c.PublicKey, c.MachineKey)
}

// token reads the current token, and refuses one of another account.
func (d *daemon) token(account *crypto.Account) (string, error) {
	c, err := config.LoadCredentials(d.cfg.CredentialsPath())
	if err != nil {
		return "", err
	}
	a, err := accountOf(c)
	if err != nil {
		return "", fmt.Errorf("credentials: %w", err)
	}
	defer a.Close()
	if a.Fingerprint() != account.Fingerprint() {
		return "", errAccountChanged
	}
	return c.Token, nil
}

// watchCredentials notices another token or another login. last is the file as it was before account was read from it.
func (d *daemon) watchCredentials(ctx context.Context, account *crypto.Account, last config.Stamp, changed chan<- struct{}, stop context.CancelCauseFunc) error {
	path := d.cfg.CredentialsPath()
	t := time.NewTicker(credentialsPoll)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		now := config.CredentialsStamp(path)
		if now == last {
			continue
		}
		last = now
		if _, err := d.token(account); errors.Is(err, errAccountChanged) {
			stop(errAccountChanged)
			return nil
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// lockHomes makes sure that no other daemon mirrors the same agents for the same account.
func (d *daemon) lockHomes(account *crypto.Account) ([]*lock.Lock, error) {
	var locks []*lock.Lock
	for _, s := range []config.Source{d.cfg.Sources.Claude, d.cfg.Sources.Codex} {
		if !s.Enabled {
			continue
		}
		for _, home := range s.Paths {
			l, err := lock.Acquire(d.o.Env.LockDir(), home, d.scopeName(account))
			if err != nil {
				for _, l := range locks {
					_ = l.Close()
				}
				return nil, err
			}
			locks = append(locks, l)
		}
	}
	return locks, nil
}

// scopeName names the state of one account on one server.
func (d *daemon) scopeName(account *crypto.Account) string {
	server := d.cfg.Server.URL
	sum := sha256.Sum256([]byte(strings.TrimRight(server, "/") + "\x00" + account.Fingerprint()))
	return hex.EncodeToString(sum[:12])
}
