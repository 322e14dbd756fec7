package store

// childEnv makes the test binary the writer that is killed.
const childEnv = "HAPPYD_STORE_CRASH_CHILD"

func crashChild() {}
