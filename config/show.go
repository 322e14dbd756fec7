package config

import (
	_ "embed"
	"fmt"
	"net/url"

	"go.yaml.in/yaml/v4"
)

// Example is the commented configuration file with every key at its default.
//
//go:embed example.yaml
var Example []byte

// masked stands in the place of a secret.
const masked = "********"

// Show returns the configuration as YAML that [Parse] reads, secrets masked.
func (c Config) Show() (string, error) {
	c.Server.Proxy = maskPassword(c.Server.Proxy)
	if c.Server.ProxyFile != "" {
		c.Server.Proxy = "" // it came from the file, and the file is shown
	}
	out, err := yaml.Dump(c)
	if err != nil {
		return "", fmt.Errorf("writing the configuration: %w", err)
	}
	return string(out), nil
}

func maskPassword(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.User == nil {
		return s
	}
	user := u.User.Username()
	u.User = nil
	rest := u.String()[len(u.Scheme)+len("://"):]
	return u.Scheme + "://" + url.PathEscape(user) + ":" + masked + "@" + rest
}
