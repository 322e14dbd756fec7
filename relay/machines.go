package relay

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"go.etcd.io/bbolt"
)

// errForeignMachine: the real server fails with 500 there, too.
var errForeignMachine = errors.New("the machine id belongs to another account")

// maxMachineID is below bbolt's limit for a key.
const maxMachineID = 1024

// machine is a row. Times are milliseconds since 1970.
type machine struct {
	Account string `json:"account"`
	machineView
}

// machineView is a machine on the wire.
type machineView struct {
	ID                 string  `json:"id"`
	Seq                int64   `json:"seq"`
	Metadata           string  `json:"metadata"`
	MetadataVersion    int64   `json:"metadataVersion"`
	DaemonState        *string `json:"daemonState"`
	DaemonStateVersion int64   `json:"daemonStateVersion"`
	DataEncryptionKey  *string `json:"dataEncryptionKey"`
	Active             bool    `json:"active"`
	ActiveAt           int64   `json:"activeAt"`
	CreatedAt          int64   `json:"createdAt"`
	UpdatedAt          int64   `json:"updatedAt"`
}

// versioned is a value that changed, in an update.
type versioned struct {
	Value   *string `json:"value"`
	Version int64   `json:"version"`
}

// machineUpdate is the body of an update about a machine.
type machineUpdate struct {
	T           string     `json:"t"` // "update-machine"
	MachineID   string     `json:"machineId"`
	Metadata    *versioned `json:"metadata,omitempty"`
	DaemonState *versioned `json:"daemonState,omitempty"`
}

func loadMachine(tx *bbolt.Tx, account, id string) (*machine, error) {
	var m machine
	found, err := load(tx, bucketMachines, id, &m)
	if err != nil || !found || m.Account != account {
		return nil, err
	}
	return &m, nil
}

func (r *Relay) saveMachine(tx *bbolt.Tx, m *machine) error {
	m.UpdatedAt = r.ms()
	return errors.Join(saveActive(tx, 'm', m.ID, m.Active), save(tx, bucketMachines, m.ID, m))
}

func noMachine() *answer { return refuse(http.StatusNotFound, "Machine not found") }

func (r *Relay) listMachines(account string, _ *http.Request) (any, error) {
	return read(r, func(tx *bbolt.Tx) (any, error) {
		list := []machineView{}
		err := tx.Bucket(bucketMachines).ForEach(func(_, v []byte) error {
			var m machine
			if err := json.Unmarshal(v, &m); err != nil {
				return err
			}
			if m.Account == account {
				list = append(list, m.machineView)
			}
			return nil
		})
		slices.SortStableFunc(list, func(a, b machineView) int { return cmp.Compare(b.ActiveAt, a.ActiveAt) })
		return list, err
	})
}

func (r *Relay) getMachine(account string, req *http.Request) (any, error) {
	return read(r, func(tx *bbolt.Tx) (any, error) {
		m, err := loadMachine(tx, account, req.PathValue("id"))
		if err != nil {
			return nil, err
		}
		if m == nil {
			return nil, noMachine()
		}
		return map[string]any{"machine": m.machineView}, nil
	})
}

// createMachine makes a machine, or returns the one that is there unchanged.
func (r *Relay) createMachine(account string, req *http.Request) (any, error) {
	var in struct{ ID, Metadata, DaemonState, DataEncryptionKey *string }
	if err := readBody(req, &in); err != nil {
		return nil, err
	}
	if in.ID == nil || in.Metadata == nil || *in.ID == "" || len(*in.ID) > maxMachineID {
		return nil, badRequest("body id and metadata are required strings")
	}
	var m *machine
	err := r.db.update(func(tx *bbolt.Tx) (func(), error) {
		var err error
		if m, err = loadMachine(tx, account, *in.ID); m != nil || err != nil {
			return nil, err
		}
		if tx.Bucket(bucketMachines).Get([]byte(*in.ID)) != nil {
			return nil, errForeignMachine
		}
		now := r.ms()
		m = &machine{account, machineView{
			ID: *in.ID, Metadata: *in.Metadata, MetadataVersion: 1, DataEncryptionKey: in.DataEncryptionKey, ActiveAt: now, CreatedAt: now,
		}}
		if in.DaemonState != nil && *in.DaemonState != "" {
			m.DaemonState, m.DaemonStateVersion = in.DaemonState, 1
		}
		if m.DataEncryptionKey != nil && *m.DataEncryptionKey == "" {
			m.DataEncryptionKey = nil
		}
		seq, err := nextUpdates(tx, account, 2)
		if err != nil {
			return nil, err
		}
		if err := r.saveMachine(tx, m); err != nil {
			return nil, err
		}
		return func() {
			r.hub.push(account, users, seq, now, newMachine(m))
			r.hub.push(account, watchers(m.ID), seq+1, now, machineUpdate{
				T: "update-machine", MachineID: m.ID, Metadata: &versioned{&m.Metadata, 1},
			})
		}, nil
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"machine": m.machineView}, nil
}

// newMachine is the body of the update about a new machine, which calls the id
// machineId.
func newMachine(m *machine) any {
	return struct {
		T         string `json:"t"`
		MachineID string `json:"machineId"`
		machineView
		ID *string `json:"id,omitempty"` // hides the view's
	}{T: "new-machine", MachineID: m.ID, machineView: m.machineView}
}

func (r *Relay) deleteMachine(account string, req *http.Request) (any, error) {
	id := req.PathValue("id")
	err := r.db.update(func(tx *bbolt.Tx) (func(), error) {
		m, err := loadMachine(tx, account, id)
		if err != nil {
			return nil, err
		}
		if m == nil {
			return nil, noMachine()
		}
		seq, err := nextUpdates(tx, account, 1)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(saveActive(tx, 'm', id, false), tx.Bucket(bucketMachines).Delete([]byte(id))); err != nil {
			return nil, err
		}
		return func() {
			r.hub.push(account, users, seq, r.ms(), map[string]string{"t": "delete-machine", "machineId": id})
		}, nil
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"success": true}, nil
}
