// Package config turns one YAML file, the environment and the platform's
// conventions into the settings that the rest of happyd runs with.
//
// In flows the text of a configuration file (or nothing: every key has a
// default that works) and an [Env], which stands for the machine: its
// environment variables, its home directory, its operating system. Out flows a
// [Config] with every path absolute and every value checked, or a [FileError]
// that lists everything that is wrong, each with file, line and key.
//
// The package also reads and writes the credentials files of the happy CLI
// (see [LoadCredentials]), because their place and their protection are
// settings, too.
//
// It never opens a network connection, never reads the process's environment
// behind the caller's back, and never puts a secret into an error or into the
// output of [Config.Show].
package config

import (
	"path/filepath"
	"time"
)

// Embedded is the value of server.url that selects the relay inside happyd.
const Embedded = "embedded"

// DefaultListen is the address of the embedded relay unless relay.listen says
// otherwise. It is fixed so that a bookmark or a paired client survives
// restarts; the digits spell "happ" on a telephone.
const DefaultListen = "127.0.0.1:4277"

// NoLogFile is the value of log.file that turns the log file off.
const NoLogFile = "none"

// Defaults of the limits. They are sized for a laptop: the log files of the
// agents are the real buffer, so small numbers lose nothing.
const (
	DefaultHistory      = 24 * time.Hour
	DefaultBufferMemory = 64 * MiB
	DefaultBatchBytes   = 1 * MiB
	DefaultMaxQueue     = 1 * GiB
)

// Config is the whole configuration. Get one from [Load] or [Default]: both
// return it with paths resolved and values checked.
type Config struct {
	Server   Server   `yaml:"server"`
	Account  Account  `yaml:"account"`
	Sources  Sources  `yaml:"sources"`
	Projects Projects `yaml:"projects"`
	Sessions Sessions `yaml:"sessions"`
	Buffer   Buffer   `yaml:"buffer"`
	Uplink   Uplink   `yaml:"uplink"`
	Protocol Protocol `yaml:"protocol"`
	Relay    Relay    `yaml:"relay"`
	Log      Log      `yaml:"log"`

	// StateDir holds cursors, queue and control socket. Deleting it is safe.
	StateDir string `yaml:"state_dir"`
	// DataDir holds the embedded relay's database and its account. It never
	// lies inside StateDir, so that deleting the latter stays safe.
	DataDir string `yaml:"data_dir"`
}

// Server says where the sealed messages go.
type Server struct {
	// URL is [Embedded] or the http(s) address of a Happy server.
	URL string `yaml:"url"`
	// Proxy is a http, https or socks5 URL, "none" to use no proxy at all, or
	// empty to follow HTTPS_PROXY and NO_PROXY. It may contain a password.
	Proxy string `yaml:"proxy"`
	// ProxyFile names a file that holds the proxy URL, for those who keep its
	// password out of the configuration.
	ProxyFile string `yaml:"proxy_file"`
	// CAFile names a PEM file with certificates to trust beside the system's.
	CAFile string `yaml:"ca_file"`
}

// IsEmbedded tells whether the relay inside happyd is the server.
func (s Server) IsEmbedded() bool { return s.URL == Embedded }

// Account says who happyd is to the server.
type Account struct {
	// Credentials is the path of a happy credentials file. With the embedded
	// relay it is ignored: the relay has an account of its own.
	Credentials string `yaml:"credentials"`
}

// Sources holds the providers whose logs are read.
type Sources struct {
	Claude Source `yaml:"claude"`
	Codex  Source `yaml:"codex"`
}

// Source is one provider.
type Source struct {
	// Enabled switches the provider on.
	Enabled bool `yaml:"enabled"`
	// Paths are the provider's home directories, absolute after loading.
	Paths []string `yaml:"paths"`
}

// Sessions says which sessions are mirrored at all.
type Sessions struct {
	// History is how far back sessions are read that happyd sees for the
	// first time.
	History History `yaml:"history"`
}

// Buffer bounds the memory for messages of subagents that wait for their parent.
type Buffer struct {
	// Memory is the limit in bytes; beyond it positions are kept, not bytes.
	Memory Size `yaml:"memory"`
}

// Uplink bounds what is sent and what waits to be sent.
type Uplink struct {
	// BatchBytes is the largest request body, in bytes of sealed messages.
	BatchBytes Size `yaml:"batch_bytes"`
	// MaxQueue is the size of the durable queue at which reading pauses.
	MaxQueue Size `yaml:"max_queue"`
}

// Protocol chooses between dialects of the session protocol.
type Protocol struct {
	// ToolNames is "provider" (Bash, Edit: what the app knows) or "spec"
	// (lower case with hyphens, as the protocol's text has it).
	ToolNames string `yaml:"tool_names"`
}

// Relay configures the embedded relay.
type Relay struct {
	// Listen is a loopback address with a port; port 0 takes any free one.
	Listen string `yaml:"listen"`
}

// PortIsOptional tells whether another free port may be taken when the
// configured one is in use: true only for the default, because a port that
// somebody chose is one that something else relies on.
func (r Relay) PortIsOptional() bool { return r.Listen == DefaultListen }

// Log says what is logged and where to.
type Log struct {
	// Level is debug, info, warn or error.
	Level string `yaml:"level"`
	// Format is auto (text on a terminal, else json), text or json.
	Format string `yaml:"format"`
	// File is a path, or [NoLogFile] for standard error only.
	File string `yaml:"file"`
}

// Path returns the log file's path, or "" when only standard error is used.
func (l Log) Path() string {
	if l.File == NoLogFile {
		return ""
	}
	return l.File
}

// Default returns the configuration of a machine without a configuration file.
func Default(env Env) Config {
	c := base()
	c.resolve(env, "")
	return c
}

// base is the configuration before the platform's paths are filled in: what
// the example file spells out.
func base() Config {
	return Config{
		Server:   Server{URL: Embedded},
		Sources:  Sources{Claude: Source{Enabled: true}, Codex: Source{Enabled: true}},
		Sessions: Sessions{History: History{Window: DefaultHistory}},
		Buffer:   Buffer{Memory: DefaultBufferMemory},
		Uplink:   Uplink{BatchBytes: DefaultBatchBytes, MaxQueue: DefaultMaxQueue},
		Protocol: Protocol{ToolNames: "provider"},
		Relay:    Relay{Listen: DefaultListen},
		Log:      Log{Level: "info", Format: "auto"},
	}
}

// resolve makes every path absolute and fills in the platform's places. dir is
// the configuration file's directory, which relative paths are relative to.
func (c *Config) resolve(env Env, dir string) {
	for _, p := range []*string{
		&c.Server.ProxyFile, &c.Server.CAFile, &c.Account.Credentials, &c.StateDir, &c.DataDir,
	} {
		*p = env.abs(*p, dir)
	}
	if c.Log.File != NoLogFile {
		c.Log.File = env.abs(c.Log.File, dir)
	}
	for _, s := range []*Source{&c.Sources.Claude, &c.Sources.Codex} {
		for i, p := range s.Paths {
			s.Paths[i] = env.abs(p, dir)
		}
	}

	dirs := env.Dirs()
	setDefault(&c.StateDir, dirs.State)
	setDefault(&c.DataDir, dirs.Data)
	setDefault(&c.Log.File, dirs.LogFile)
	if len(c.Sources.Claude.Paths) == 0 {
		c.Sources.Claude.Paths = []string{env.homeOf("CLAUDE_CONFIG_DIR", ".claude")}
	}
	if len(c.Sources.Codex.Paths) == 0 {
		c.Sources.Codex.Paths = []string{env.homeOf("CODEX_HOME", ".codex")}
	}
	setDefault(&c.Account.Credentials, filepath.Join(env.homeOf("HAPPY_HOME_DIR", ".happy"), "access.key"))
	c.Projects = NewProjects(c.Projects.Include, c.Projects.Exclude, env)
}

func setDefault(p *string, value string) {
	if *p == "" {
		*p = value
	}
}

// CredentialsPath returns the credentials file that belongs to the configured
// server: the relay's own account beside its data, else account.credentials.
func (c Config) CredentialsPath() string {
	if c.Server.IsEmbedded() {
		return filepath.Join(c.DataDir, "access.key")
	}
	return c.Account.Credentials
}
