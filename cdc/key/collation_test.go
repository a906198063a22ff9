package key_test

import (
	"testing"

	"tidegate/cdc/key"
)

func TestCollationName(t *testing.T) {
	for id, want := range map[uint64]string{255: "utf8mb4_0900_ai_ci", 8: "latin1_swedish_ci", 28: "gbk_chinese_ci", 63: "binary", 0: "", 1 << 20: ""} {
		if got := key.CollationName(id); got != want {
			t.Errorf("CollationName(%d) = %q, want %q", id, got, want)
		}
	}
}
