package config

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// testEnv is a machine with a home directory of its own and these variables.
func testEnv(t *testing.T, vars map[string]string) Env {
	t.Helper()
	return Env{GOOS: runtime.GOOS, Home: t.TempDir(), Lookup: func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}}
}

func TestExampleEqualsDefaultsAndNamesEveryKey(t *testing.T) {
	env := testEnv(t, nil)
	got, err := Parse(filepath.Join(env.Home, "config.yaml"), Example, env)
	if err != nil {
		t.Fatal(err)
	}
	if want := Default(env); !reflect.DeepEqual(got, want) {
		t.Errorf("example differs from the defaults:\n got %+v\nwant %+v", got, want)
	}

	d := decoder{env: env, lines: map[string]int{}}
	c := base()
	d.decodeStruct(d.parse(Example), reflectValue(&c), "")
	for _, key := range Keys() {
		if d.lines[key] == 0 {
			t.Errorf("the example does not name %s", key)
		}
	}
	if strings.Contains(string(Example), "\t") {
		t.Error("the example contains tabs")
	}
}

func TestLoadWithoutFile(t *testing.T) {
	env := testEnv(t, nil)
	got, err := Load("", env)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, Default(env)) {
		t.Errorf("got %+v", got)
	}
	if _, err := Load(filepath.Join(env.Home, "absent.yaml"), env); err == nil {
		t.Error("a named file that is absent must be an error")
	}
}

func TestLoadFindsTheDefaultFile(t *testing.T) {
	env := testEnv(t, nil)
	path := DefaultPath(env)
	write(t, path, "sessions:\n  history: 7d\n")
	got, err := Load("", env)
	if err != nil {
		t.Fatal(err)
	}
	if want := 7 * 24 * time.Hour; got.Sessions.History.Window != want {
		t.Errorf("history = %v, want %v", got.Sessions.History.Window, want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestParseAccepts(t *testing.T) {
	tests := map[string]struct {
		text  string
		check func(Config) bool
	}{
		"empty file":      {"", func(c Config) bool { return c.Server.IsEmbedded() }},
		"comments only":   {"# nothing\n", func(c Config) bool { return c.Server.IsEmbedded() }},
		"null document":   {"---\n", func(c Config) bool { return c.Server.IsEmbedded() }},
		"null section":    {"server:\nlog:\n  level: debug\n", func(c Config) bool { return c.Log.Level == "debug" && c.Server.IsEmbedded() }},
		"null value":      {"server:\n  url:\n", func(c Config) bool { return c.Server.IsEmbedded() }},
		"server":          {"server:\n  url: https://happy.example.org/\n", func(c Config) bool { return c.Server.URL == "https://happy.example.org" && !c.Server.IsEmbedded() }},
		"environment":     {"server:\n  url: https://${HOST}\n", func(c Config) bool { return c.Server.URL == "https://h.example" }},
		"escaped":         {"projects:\n  exclude: ['/a/$${HOST}']\n", func(c Config) bool { return c.Projects.Exclude[0] == "/a/${HOST}" }},
		"bool from env":   {"sources:\n  codex:\n    enabled: ${OFF}\n", func(c Config) bool { return !c.Sources.Codex.Enabled }},
		"list of one":     {"projects:\n  include: ~/work\n", func(c Config) bool { return len(c.Projects.Include) == 1 }},
		"plain size":      {"buffer:\n  memory: 2097152\n", func(c Config) bool { return c.Buffer.Memory == 2*MiB }},
		"no history":      {"sessions:\n  history: none\n", func(c Config) bool { return c.Sessions.History == History{} }},
		"all history":     {"sessions:\n  history: all\n", func(c Config) bool { return c.Sessions.History.All }},
		"days and hours":  {"sessions:\n  history: 1d12h\n", func(c Config) bool { return c.Sessions.History.Window == 36*time.Hour }},
		"no log file":     {"log:\n  file: none\n", func(c Config) bool { return c.Log.Path() == "" }},
		"IPv6 loopback":   {"relay:\n  listen: '[::1]:0'\n", func(c Config) bool { return !c.Relay.PortIsOptional() }},
		"direct":          {"server:\n  proxy: none\n", func(c Config) bool { return c.Server.Proxy == "none" }},
		"byte order mark": {"\ufeffserver:\n  url: embedded\n", func(c Config) bool { return c.Server.IsEmbedded() }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env := testEnv(t, map[string]string{"HOST": "h.example", "OFF": "false"})
			c, err := Parse("c.yaml", []byte(tt.text), env)
			if err != nil {
				t.Fatal(err)
			}
			if !tt.check(c) {
				t.Errorf("unexpected result: %+v", c)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"unknown key":         {"server:\n  ulr: embedded\n", `c.yaml:2: server.ulr: unknown key: did you mean "server.url"?`},
		"unknown section":     {"\nsesions:\n  history: 1h\n", `c.yaml:2: sesions: unknown key: did you mean "sessions"?`},
		"wrong level":         {"history: 24h\n", `c.yaml:1: history: unknown key: did you mean "sessions.history"?`},
		"nothing near":        {"log:\n  zzzzzz: 1\n", `c.yaml:2: log.zzzzzz: unknown key; known here: file, format, level`},
		"twice":               {"log:\n  level: info\n  level: warn\n", `c.yaml:3: log.level: is already set in line 2`},
		"second document":     {"log:\n  level: info\n---\nlog: {}\n", `a second document begins here`},
		"syntax":              {"server:\n  url: [\n", `not valid YAML`},
		"tab":                 {"server:\n\turl: embedded\n", `c.yaml:2: not valid YAML`},
		"list on top":         {"- server\n", `c.yaml:1: a list is not a section`},
		"value for section":   {"server: embedded\n", `c.yaml:1: server: a single value is not a section`},
		"section for value":   {"state_dir:\n  a: b\n", `c.yaml:2: state_dir: a section where a single value belongs`},
		"null in a list":      {"projects:\n  include:\n    -\n", `projects.include[0]: an empty value where`},
		"alias":               {"state_dir: &x /a\ndata_dir: *x\n", `c.yaml:2: data_dir: YAML aliases`},
		"not a bool":          {"sources:\n  claude:\n    enabled: perhaps\n", `c.yaml:3: sources.claude.enabled: "perhaps" is neither true nor false`},
		"not a size":          {"buffer:\n  memory: lots\n", `c.yaml:2: buffer.memory: "lots" is not a size`},
		"huge size":           {"buffer:\n  memory: 9999999999999GiB\n", `too large a size`},
		"small buffer":        {"buffer:\n  memory: 10B\n", `c.yaml:2: buffer.memory: 10 is too little`},
		"large batch":         {"uplink:\n  batch_bytes: 1GiB\n", `uplink.batch_bytes: 1GiB is not between`},
		"small queue":         {"uplink:\n  batch_bytes: 8MiB\n  max_queue: 4MiB\n", `c.yaml:3: uplink.max_queue: 4MiB is too little: at least 8MiB`},
		"not a history":       {"sessions:\n  history: 30\n", `c.yaml:2: sessions.history: "30" is not a history`},
		"negative history":    {"sessions:\n  history: -3h\n", `is not a history`},
		"enumeration":         {"log:\n  level: wran\n", `c.yaml:2: log.level: "wran" is not one of debug, info, warn, error: did you mean "warn"?`},
		"unset variable":      {"server:\n  url: https://${NOPE}\n", `c.yaml:2: server.url: the environment variable NOPE is not set`},
		"scheme":              {"server:\n  url: ftp://x\n", `must begin with https:// or http://`},
		"bare host":           {"server:\n  url: happy.example.org\n", `is neither "embedded" nor an address`},
		"password in url":     {"server:\n  url: https://u:p@x\n", `must not hold a user or a password`},
		"query":               {"server:\n  url: https://x/?a=b\n", `must not have a query`},
		"proxy scheme":        {"server:\n  proxy: ftp://u:geheim@x\n", `must begin with http://, https:// or socks5://`},
		"proxy twice":         {"server:\n  proxy: none\n  proxy_file: x\n", `c.yaml:3: server.proxy_file: server.proxy is set, too`},
		"proxy file absent":   {"server:\n  proxy_file: x\n", `c.yaml:2: server.proxy_file: open`},
		"open to the network": {"relay:\n  listen: 0.0.0.0:80\n", `"0.0.0.0" is not a loopback address`},
		"named host":          {"relay:\n  listen: example.org:80\n", `"example.org" is not a loopback address`},
		"no port":             {"relay:\n  listen: localhost\n", `is not an address such as`},
		"wild port":           {"relay:\n  listen: localhost:99999\n", `"99999" is not a port`},
		"bad glob":            {"projects:\n  exclude:\n    - /ok\n    - /a/[b\n", `c.yaml:4: projects.exclude[1]: "/a/[b" is not a valid pattern`},
		"half stars":          {"projects:\n  include: [/a/**b]\n", `** must stand alone`},
		"empty glob":          {"projects:\n  include: ['']\n", `an empty pattern matches nothing`},
		"data inside state":   {"state_dir: /s\ndata_dir: /s/data\n", `c.yaml:2: data_dir: `},
		"data is state":       {"state_dir: /s\ndata_dir: /s/\n", `which may be deleted`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("c.yaml", []byte(tt.text), testEnv(t, nil))
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error does not contain %q:\n%v", tt.want, err)
			}
			if strings.Contains(err.Error(), "geheim") {
				t.Errorf("error shows a password: %v", err)
			}
		})
	}
}

func TestAllProblemsAtOnceInLineOrder(t *testing.T) {
	text := "log:\n  level: loud\n  colour: red\nbuffer:\n  memory: lots\nrelay:\n  listen: 1.2.3.4:5\n"
	_, err := Parse("c.yaml", []byte(text), testEnv(t, nil))
	var lines []int
	for _, p := range err.(*FileError).Problems {
		lines = append(lines, p.Line)
	}
	if want := []int{2, 3, 5, 7}; !reflect.DeepEqual(lines, want) {
		t.Errorf("lines %v, want %v:\n%v", lines, want, err)
	}
}

func TestPathsAreResolved(t *testing.T) {
	env := testEnv(t, map[string]string{"CODEX_HOME": "/opt/codex"})
	dir := filepath.Join(env.Home, "cfg")
	c, err := Parse(filepath.Join(dir, "c.yaml"), []byte("state_dir: ~/st\ndata_dir: dat\nsources:\n  claude:\n    paths: [~, rel]\n"), env)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "windows" {
		t.Skip("the paths below are written for unix")
	}
	for _, tt := range []struct{ name, got, want string }{
		{"state_dir", c.StateDir, env.Home + "/st"},
		{"data_dir", c.DataDir, dir + "/dat"},
		{"claude 0", c.Sources.Claude.Paths[0], env.Home},
		{"claude 1", c.Sources.Claude.Paths[1], dir + "/rel"},
		{"codex", c.Sources.Codex.Paths[0], "/opt/codex"},
		{"credentials", c.Account.Credentials, env.Home + "/.happy/access.key"},
		{"effective credentials", c.CredentialsPath(), dir + "/dat/access.key"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s = %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}

func TestDataDirBehindALink(t *testing.T) {
	env := testEnv(t, nil)
	state := filepath.Join(env.Home, "state")
	if err := os.MkdirAll(filepath.Join(state, "inner"), 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(env.Home, "link")
	if err := os.Symlink(filepath.Join(state, "inner"), link); err != nil {
		t.Skip("no symbolic links here")
	}
	_, err := Parse("c.yaml", []byte("state_dir: "+state+"\ndata_dir: "+filepath.Join(link, "new")+"\n"), env)
	if err == nil || !strings.Contains(err.Error(), "which may be deleted") {
		t.Errorf("got %v", err)
	}
}

func TestPlatformDirs(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths below are written for unix")
	}
	vars := func(kv ...string) func(string) (string, bool) {
		return func(name string) (string, bool) {
			for i := 0; i < len(kv); i += 2 {
				if kv[i] == name {
					return kv[i+1], true
				}
			}
			return "", false
		}
	}
	tests := map[string]struct {
		env  Env
		want Dirs
	}{
		"linux": {Env{GOOS: "linux", Home: "/h"},
			Dirs{"/h/.config/happyd", "/h/.local/state/happyd", "/h/.local/share/happyd", NoLogFile}},
		"linux xdg": {Env{GOOS: "linux", Home: "/h", Lookup: vars("XDG_STATE_HOME", "/s", "XDG_DATA_HOME", "relative")},
			Dirs{"/h/.config/happyd", "/s/happyd", "/h/.local/share/happyd", NoLogFile}},
		"darwin": {Env{GOOS: "darwin", Home: "/h"},
			Dirs{"/h/Library/Application Support/happyd", "/h/Library/Application Support/happyd/state", "/h/Library/Application Support/happyd/data", "/h/Library/Logs/happyd/happyd.log"}},
		"windows": {Env{GOOS: "windows", Home: "/h", Lookup: vars("LOCALAPPDATA", "/l")},
			Dirs{"/l/happyd", "/l/happyd/state", "/l/happyd/data", "/l/happyd/logs/happyd.log"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.env.Dirs(); got != tt.want {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestProxyFileAndShow(t *testing.T) {
	env := testEnv(t, nil)
	write(t, filepath.Join(env.Home, "proxy"), "http://me:geheim@proxy:3128\n")
	for name, text := range map[string]string{
		"in the file":    "server:\n  proxy: http://me:geheim@proxy:3128\n",
		"in its own one": "server:\n  proxy_file: ~/proxy\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Parse("c.yaml", []byte(text), env)
			if err != nil {
				t.Fatal(err)
			}
			if c.Server.Proxy != "http://me:geheim@proxy:3128" {
				t.Errorf("proxy = %q", c.Server.Proxy)
			}
			shown, err := c.Show()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(shown, "geheim") {
				t.Errorf("the password is shown:\n%s", shown)
			}
			if _, err := Parse("shown.yaml", []byte(shown), env); err != nil {
				t.Errorf("what is shown does not load: %v\n%s", err, shown)
			}
		})
	}
}

func TestShowIsEffectiveConfiguration(t *testing.T) {
	env := testEnv(t, nil)
	c := Default(env)
	shown, err := c.Show()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("shown.yaml", []byte(shown), env)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c, again) {
		t.Errorf("shown configuration differs:\n%s\n got %+v\nwant %+v", shown, again, c)
	}
}

func TestCheck(t *testing.T) {
	env := testEnv(t, nil)
	write(t, filepath.Join(env.Home, "ca.pem"), "not a certificate")
	c, err := Parse("c.yaml", []byte("server:\n  url: http://happy.example.org\n  ca_file: "+filepath.Join(env.Home, "ca.pem")+"\n"), env)
	if err != nil {
		t.Fatal(err)
	}
	notes, err := c.Check()
	for _, want := range []string{"holds no PEM certificate", "account.credentials"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	all := strings.Join(notes, "\n")
	for _, want := range []string{"plain http", "does not exist yet", "nothing to mirror"} {
		if !strings.Contains(all, want) {
			t.Errorf("notes lack %q:\n%s", want, all)
		}
	}

	write(t, filepath.Join(env.Home, ".claude", "x"), "")
	notes, err = Default(env).Check()
	if err != nil || strings.Contains(strings.Join(notes, "\n"), "nothing to mirror") {
		t.Errorf("got %v, %v", notes, err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(""))
	f.Add(Example)
	f.Add([]byte("server: {url: 'https://${A}'}\nprojects: {exclude: ['**/x', '[']}\n"))
	f.Add([]byte("a: &a [*a]\n---\n"))
	f.Add([]byte("? {a: b}\n: c\n<<: *x\n"))
	f.Add([]byte("sessions:\n  history: 9999d\nbuffer: {memory: 99999999999GiB}\n"))
	env := Env{GOOS: "linux", Home: "/home/u", Lookup: func(string) (string, bool) { return "v", true }}
	f.Fuzz(func(t *testing.T, data []byte) {
		if strings.Contains(string(data), "proxy_file") {
			t.Skip("reads a file")
		}
		c, err := Parse("c.yaml", data, env)
		if err != nil {
			return
		}
		shown, err := c.Show()
		if err != nil {
			t.Fatalf("accepted but cannot be shown: %v", err)
		}
		c.Projects.Included("/home/u/x")
		if c.Server.Proxy != "" && c.Server.Proxy != "none" {
			return // its password does not survive being shown
		}
		again, err := Parse("c.yaml", []byte(strings.ReplaceAll(shown, "${", "$${")), env)
		if err != nil {
			t.Fatalf("shown configuration does not load: %v\n%s", err, shown)
		}
		if !reflect.DeepEqual(c, again) {
			t.Fatalf("shown configuration differs:\n%s\n got %+v\nwant %+v", shown, again, c)
		}
	})
}
