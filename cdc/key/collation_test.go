package key_test

import (
	"testing"

	"tidegate/cdc/key"
)

func TestDecodeText(t *testing.T) {
	for _, tc := range []struct {
		collation, text, want string
		ok                    bool
	}{
		{"latin1_swedish_ci", "\xe9\x80", "é€", true},
		{"utf16_bin", "\x00a\xd8\x3d\xde\x42", "a🙂", true},
		{"utf8mb4_bin", "é🙂", "é🙂", true},
		{"cp932_bin", "\x88\xea", "一", true},
		{"utf8mb4_bin", "\xff", "", false},
		{"utf16_bin", "\x00", "", false},
		{"gbk_bin", "a", "", false},
		{"", "a", "", false},
	} {
		if got, ok := key.DecodeText(tc.collation, []byte(tc.text)); got != tc.want || ok != tc.ok {
			t.Errorf("DecodeText(%s, %x) = %q, %v", tc.collation, tc.text, got, ok)
		}
	}
}

func TestCollationName(t *testing.T) {
	for id, want := range map[uint64]string{255: "utf8mb4_0900_ai_ci", 8: "latin1_swedish_ci", 28: "gbk_chinese_ci", 63: "binary", 0: "", 1 << 20: ""} {
		if got := key.CollationName(id); got != want {
			t.Errorf("CollationName(%d) = %q, want %q", id, got, want)
		}
	}
}
