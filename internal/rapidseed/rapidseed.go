// Package rapidseed makes the property tests that use rapid repeat themselves in CI, so that a change is judged by what it changes.
// Importing it for its side effect is enough. Everywhere else they draw new cases at each run; a -rapid.seed on the command line
// holds in both.
package rapidseed

import (
	"flag"
	"os"

	_ "pgregory.net/rapid" // registers the flag
)

func init() {
	if os.Getenv("CI") != "" {
		_ = flag.Set("rapid.seed", "20261201") // the flag exists: rapid is imported above
	}
}
