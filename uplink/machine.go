package uplink

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nrednav/cuid2"
)

// machineKey stands for the machine in the queue of sessions.
const machineKey = "\x00machine"

// machineValue is the scope's value that holds the id in place of a configured
// one that another account owns.
func machineValue(configured string) string { return "machine/" + configured }

// MachineID is the machine's id as the server knows it: Options.MachineID, or
// what replaced it because another account has that one.
func (u *Uplink) MachineID() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.machine
}

func (u *Uplink) loadMachine() error {
	u.machine = u.o.MachineID
	if u.machine == "" {
		return nil
	}
	v, ok, err := u.o.Scope.Value(machineValue(u.machine))
	if err != nil {
		return fmt.Errorf("loading the machine id: %w", err)
	}
	if ok {
		u.machine = string(v)
	}
	return nil
}

// registerMachine introduces the machine once per run. It is the first request
// of all, so it also tells whether the server and the account are right.
func (u *Uplink) registerMachine(ctx context.Context) (bool, time.Duration) {
	u.mu.Lock()
	s := u.session(machineKey)
	u.mu.Unlock()
	err := u.verify(ctx)
	var se *statusError
	if err == nil {
		s.attempt = 0
		return false, 0
	}
	if errors.As(err, &se) && se.code == http.StatusInternalServerError && s.attempt == 1 {
		// Twice: not a bad moment. An id of another account (an earlier login
		// on this machine) is answered like this.
		if err := u.replaceMachineID(ctx); err != nil {
			u.log.Debug("looking for the machine id", "err", err)
		}
	}
	return u.failed(s, err)
}

func (u *Uplink) replaceMachineID(ctx context.Context) error {
	u.mu.Lock()
	id := u.machine
	u.mu.Unlock()
	if id == "" || id != u.o.MachineID {
		return nil // replaced once is enough
	}
	var known bool
	err := u.request(ctx, func(ctx context.Context, token string) (err error) {
		known, err = u.api.machineKnown(ctx, token, id)
		return err
	})
	if err != nil || known {
		return err
	}
	id = cuid2.Generate()
	if err := u.o.Scope.SetValue(u.background(), machineValue(u.o.MachineID), []byte(id)); err != nil {
		return err
	}
	u.mu.Lock()
	u.machine = id
	u.mu.Unlock()
	u.log.Info("another account has this machine's id, using a new one")
	return nil
}

// verify asks a question that only a living server with this account answers.
// Registering the machine is that question: unlike all reading requests, it
// fails when the account is no more.
//
// The machine gets no socket of its own and no RPC method is offered: happy's
// own daemon may serve the same machine, and the app would see it go offline
// whenever one of the two disconnects.
func (u *Uplink) verify(ctx context.Context) error {
	id := u.MachineID()
	if id == "" {
		return u.request(ctx, u.api.listMachines)
	}
	sealer, wrapped, err := u.o.Account.Machine()
	if err != nil {
		return fmt.Errorf("machine keys: %w", err)
	}
	metadata, err := sealer.Seal(u.o.MachineMetadata)
	if err != nil {
		return fmt.Errorf("sealing machine metadata: %w", err)
	}
	return u.request(ctx, func(ctx context.Context, token string) error {
		return u.api.createMachine(ctx, token, id, metadata, wrapped)
	})
}
