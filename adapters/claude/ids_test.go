package claude_test

import (
	"testing"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/internal/pumptest"
)

// TestIDsNeverChange pins what ids are derived from, over one small session with everything that has an id of its own. A change
// here doubles every message of every user: the same log, read again, would be new to every server.
func TestIDsNeverChange(t *testing.T) {
	const id = "5e551000-0000-4000-8000-00000000aaaa"
	files := pumptest.ReadHome(t, claude.Provider{}, "testdata/ids")[id]
	if len(files) == 0 {
		t.Fatal("no session")
	}
	envs := pumptest.Feed(t, claude.Provider{}, id, files, pumptest.Run{Options: adapters.SessionOptions{Tag: "tag of the session"}})
	want := []struct{ what, id, turn, subagent string }{
		{"text", "agys9v1vrskpnrliyt6unnl1", "", ""},
		{"turn-start", "wy6wgdeyt48wj962yjm9dvnz", "htzx4bxc7i8870wznc7q9di4", ""},
		{"text", "m4qfnkwt7mzy8kd9t4qu77gl", "htzx4bxc7i8870wznc7q9di4", ""},
		{"text", "mfw5mqn5jb2f98xq5dk5g821", "htzx4bxc7i8870wznc7q9di4", ""},
		{"tool-call-start", "fcm7lulhxwe9qsmm1rndbehv", "htzx4bxc7i8870wznc7q9di4", ""},
		{"start", "ifevest7hsliyf3mp9268xg9", "htzx4bxc7i8870wznc7q9di4", "c008c486a6f1de6bbea821fb"},
		{"tool-call-start", "mdjuux5ogzisa2zij8mkhakp", "htzx4bxc7i8870wznc7q9di4", "c008c486a6f1de6bbea821fb"},
		{"tool-call-end", "ca0k9hducdal18mjy15n666p", "htzx4bxc7i8870wznc7q9di4", "c008c486a6f1de6bbea821fb"},
		{"text", "aq3h7kzw0rbnupyoujyw5hfx", "htzx4bxc7i8870wznc7q9di4", "c008c486a6f1de6bbea821fb"},
		{"stop", "x1huty97o2ze9e3dpfalabsz", "htzx4bxc7i8870wznc7q9di4", "c008c486a6f1de6bbea821fb"},
		{"tool-call-end", "n6ykiorhblea0wotac9juffc", "htzx4bxc7i8870wznc7q9di4", ""},
		{"tool-call-start", "l7q725rwxjevs42m2p9qpety", "htzx4bxc7i8870wznc7q9di4", ""},
		{"tool-call-end", "v59ujhq6j5697sy7u5bxgzi1", "htzx4bxc7i8870wznc7q9di4", ""},
		{"service", "r8ejerkuyhx7n7bwf8jgrku5", "htzx4bxc7i8870wznc7q9di4", ""},
		{"tool-call-start", "kkpnx7x68ogf0bp5y5wa783d", "htzx4bxc7i8870wznc7q9di4", ""},
		{"tool-call-end", "coopcx4s5rhldhanedzozssz", "htzx4bxc7i8870wznc7q9di4", ""},
		{"text", "pj4gm7xbtwbbu96l9t0vi3s2", "", ""},
		{"service", "veajstmcsxay7z0z91ycqf4i", "htzx4bxc7i8870wznc7q9di4", ""},
		{"turn-end", "hv35r06okn3xcuhjg97z7yqf", "htzx4bxc7i8870wznc7q9di4", ""},
		{"text", "gj46e48o3jmf35iju41nxqd4", "", ""},
		{"turn-start", "wi6qrb4l1dbpwtbt897jnbi3", "ihhq7kuuvzt99vpcjyhvqlci", ""},
		{"text", "sv3s745sfwwdvxof5jt7qp9d", "ihhq7kuuvzt99vpcjyhvqlci", ""},
		{"turn-end", "gxaz7x55cungdv4a8ivj0jbq", "ihhq7kuuvzt99vpcjyhvqlci", ""},
		{"turn-start", "wz943rh8lotjilimqi62zfni", "gt6t5cwjf226zoozsjtetvqt", ""},
		{"text", "tidwyj3likcafh8ubbwf4knb", "gt6t5cwjf226zoozsjtetvqt", ""},
		{"text", "aubdkkfry8o5i0koh9lecajy", "gt6t5cwjf226zoozsjtetvqt", ""},
		{"turn-end", "myjrnpsmldzh3tt5zptccp6r", "gt6t5cwjf226zoozsjtetvqt", ""},
		{"turn-start", "g9uaxsk0ratudig5dppsfxxx", "yv78fjupse7cb9j5rihpogyc", ""},
		{"tool-call-start", "b9xro4mnkqqlx4nuahc9ub2u", "yv78fjupse7cb9j5rihpogyc", ""},
		{"tool-call-end", "s82rezxnkkj476t2umtzyvsd", "yv78fjupse7cb9j5rihpogyc", ""},
		{"turn-end", "punohlt53lpt5oq4tvh7ul45", "yv78fjupse7cb9j5rihpogyc", ""},
		{"start", "jetyxo5701k3yu4l5fffuukt", "yv78fjupse7cb9j5rihpogyc", "ce8ca1757914bc427bdc7577"},
		{"text", "y3n5b4sw0aoe6l90nj6oh3r1", "yv78fjupse7cb9j5rihpogyc", "ce8ca1757914bc427bdc7577"},
		{"stop", "e4wnfiu94fcis07c00j58sym", "yv78fjupse7cb9j5rihpogyc", "ce8ca1757914bc427bdc7577"},
	}
	for i, e := range envs {
		if i >= len(want) {
			t.Errorf("{%q, %q, %q, %q},", e.Ev.T, e.ID, e.Turn, e.Subagent)
			continue
		}
		if w := want[i]; w.what != string(e.Ev.T) || w.id != e.ID || w.turn != e.Turn || w.subagent != e.Subagent {
			t.Errorf("envelope %d: got {%q, %q, %q, %q}, want %q", i, e.Ev.T, e.ID, e.Turn, e.Subagent, w)
		}
	}
	if len(envs) < len(want) {
		t.Errorf("%d envelopes, want %d", len(envs), len(want))
	}
}
