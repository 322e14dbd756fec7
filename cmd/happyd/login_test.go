package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/happyd/happyd/config"
)

func TestAnotherLoginDuringTheStartIsNoticed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.key")
	login := func(secret byte) {
		t.Helper()
		if err := config.SaveCredentials(path, config.Credentials{Secret: bytes.Repeat([]byte{secret}, 32), Token: "token"}); err != nil {
			t.Fatal(err)
		}
	}
	login(1)
	var cfg config.Config
	cfg.Server.URL = "https://happy.example"
	cfg.Account.Credentials = path
	d := newDaemon(cfg, daemonOptions{Home: t.TempDir()})
	stamp := config.CredentialsStamp(path)
	_, account, err := d.login()
	if err != nil {
		t.Fatal(err)
	}
	defer account.Close()
	login(2) // before anyone watches
	ctx, stop := context.WithCancelCause(context.Background())
	time.AfterFunc(20*time.Second, func() { stop(context.DeadlineExceeded) })
	if err := d.watchCredentials(ctx, account, stamp, make(chan struct{}, 1), stop); err != nil {
		t.Fatal(err)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errAccountChanged) {
		t.Errorf("ended by %v", cause)
	}
}
