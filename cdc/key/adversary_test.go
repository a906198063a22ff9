package key

import (
	"math/rand/v2"
	"strings"
)

// siblings are groups of texts that some collation calls equal (and others do
// not): case, accents in both normal forms, expansions, contractions, widths,
// kana, compatibility characters, ignorable characters, spaces, controls. Texts
// made of them, and mutations within a group, meet far more equal pairs and
// contractions than random text would.
var siblings = [][]string{
	{"a", "A", "á", "à", "Á", "a\u0301", "a\u0300", "ａ", "Ａ", "𝐀", "𝔸", "ª", "ⓐ"},
	{"å", "Å", "A\u030a", "a\u030a", "\u212b", "aa", "AA", "Aa", "aA"},
	{"ä", "Ä", "a\u0308", "ae", "æ", "Æ", "AE", "ǽ", "Ǽ"},
	{"ø", "Ø", "ö", "Ö", "o\u0308", "oe", "œ", "Œ", "o", "O", "ő", "ô", "ơ", "o\u031b", "ở"},
	{"ß", "ss", "SS", "ẞ", "ſs", "s", "S", "ſ", "š", "ş", "ș"},
	{"i", "I", "İ", "ı", "i\u0307", "í", "î", "y", "Y", "ý", "ü", "Ü", "u", "U", "j", "J", "v", "V", "w", "W"},
	{"ch", "Ch", "CH", "cH", "c", "č", "ç", "ć", "C"},
	{"ll", "LL", "Ll", "l", "ł", "Ł", "lj", "LJ", "Lj", "ǉ", "ǈ", "l·l", "ľ"},
	{"dz", "Dz", "DZ", "ǆ", "dž", "đ", "Đ", "ð", "d", "dzs", "ddzs", "ddz", "Dzs"},
	{"cs", "ccs", "Cs", "gy", "ggy", "Gy", "ny", "nny", "sz", "ssz", "ty", "tty", "zs", "zzs", "ly", "lly"},
	{"nj", "Nj", "NJ", "ǌ", "ñ", "n", "N", "ng", "Ng", "n\u0303", "ŉ"},
	{"rr", "Rr", "r", "ř", "ij", "IJ", "ĳ", "gh", "Gh", "þ", "th", "Þ", "z", "ž", "ż", "ź"},
	{"ﬁ", "fi", "ﬀ", "ff", "ﬃ", "ffi", "№", "No", "™", "TM", "K", "\u212a", "k", "Ω", "\u2126", "ω"},
	{"1", "①", "¹", "１", "𝟏", "½", "1/2", "1\u20442", "Ⅰ", "10", "⑩", "0", "٠", "٠١"},
	{"か", "カ", "ｶ", "ヵ", "㋕", "が", "ガ", "か\u3099", "ｶﾞ"},
	{"は", "ば", "ぱ", "ハ", "ﾊ", "は\u309a", "カー", "カア", "かあ", "カァ", "キー", "きい", "ー", "ｰ", "あ", "ア", "ァ", "ぁ"},
	{"ゝ", "ゞ", "ヽ", "ヾ", "かゝ", "かか", "カヽ", "がゞ", "かゞ"},
	{"가", "\u1100\u1161", "각", "\u1100\u1161\u11a8", "ㄱ", "ᄀ", "ﾡ", "\ud7a3"},
	{"一", "丁", "㐀", "\U00020000", "豈", "更", "\ufa0e", "\u4e0d", "\u2f00", "⼀", "亜", "唖", "龥", "\U0002a6d6", "\u9fa5", "\u9fff"},
	{"เก", "กเ", "แข", "ไม", "ใ", "ฤ", "ก", "ข", "ก็", "กา", "โ"},
	{"ເກ", "ກເ", "ແກ", "ກ", "ໜ", "ຫນ", "ໄກ"},
	{"\u09c7\u09d7", "\u09cc", "\u09c7\u09be", "\u09cb", "\u0bca", "\u0bc6\u0bbe", "\u0d4a", "\u0d46\u0d3e", "\u0b4c", "\u0ddd"},
	{"\u0f73", "\u0f71\u0f72", "\u0fb2\u0f80", "\u0f76", "\u1025\u102e", "\u1026", "\u17c1", "ក"},
	{"ا", "آ", "ا\u0653", "ﺍ", "أ", "لا", "ﻻ", "ي", "ى", "ک", "ك", "ه", "ة"},
	{"ש", "שׁ", "\ufb2a", "א", "אל", "ﭏ", "\u05d0\u05b7", "\ufb2e"},
	{"и", "й", "и\u0306", "Й", "е", "ё", "Ё", "ѐ", "я", "Я", "ї", "ґ", "ь", "ъ", "щ", "ђ", "дж"},
	{"σ", "ς", "Σ", "ά", "\u1f71", "α", "ᾳ", "α\u0345", "Α", "ι", "ϊ", "ΐ", "\u1fbe", "µ", "μ"},
	{"ệ", "e\u0323\u0302", "ê\u0323", "e\u0302\u0323", "e", "E", "é", "ě", "ė", "ę", "ǝ", "ε"},
	{"🙂", "🙃", "👍", "👍🏽", "👩\u200d👩\u200d👧", "❤", "❤\ufe0f", "🇩🇪", "\U0001f600", "𐐨", "𐐀", "\U000e0041"},
	{"\ufffd", "\uffff", "\ufffe", "\U0010ffff", "\ue000", "\U000f0000", "\ufdd0", "\u0378"},
	{"", "\x00", "\x01", "\x08", "\x1b", "\x7f", "\u0080", "\u200b", "\u200d", "\u00ad", "\ufe0f", "\u034f", "\ufeff", "\u2060", "\U000e0001", "\u061c", "\u180e"},
	{" ", "\t", "\n", "\r", "\u00a0", "\u2003", "\u3000", "\u2000", "\u1680", "\u2028", "  "},
	{"\u0300", "\u0301", "\u0302", "\u0303", "\u0304", "\u0306", "\u0307", "\u0308", "\u030a", "\u030b", "\u030c", "\u031b", "\u0323", "\u0327", "\u0328", "\u0338", "\u0345", "\u0334", "\u0344", "\u0340"},
	{"-", "'", "_", ",", ".", "’", "\u2010", "\u2011", "，", "．", "–", "·", "‚", "/", "\\", "~", "¥", "￥", "\u203e", "^", "`", "´"},
}

// adversary draws texts.
type adversary struct{ *rand.Rand }

// text draws a text and a mutation of it.
func (a adversary) pair() (text, mutation string) {
	var t, m strings.Builder
	atoms := a.IntN(6)
	if a.IntN(16) == 0 {
		atoms = 10 + a.IntN(30)
	}
	for range atoms {
		group := siblings[a.IntN(len(siblings))]
		one := group[a.IntN(len(group))]
		t.WriteString(one)
		switch a.IntN(4) {
		case 0:
			m.WriteString(one)
		default:
			m.WriteString(group[a.IntN(len(group))])
		}
	}
	switch a.IntN(8) {
	case 0:
		m.WriteString(" ")
	case 1:
		m.WriteString("   ")
	case 2:
		t.WriteString(" ")
		m.WriteString("\u00a0")
	case 3:
		m.WriteString("\x00")
	case 4:
		m.WriteString("\u200b ")
	}
	return t.String(), m.String()
}

// runes draws a text of any characters from the planes that have some.
func (a adversary) runes() string {
	var b strings.Builder
	for range 1 + a.IntN(4) {
		b.WriteRune(a.rune())
	}
	return b.String()
}

func (a adversary) rune() rune {
	limits := [...]int{0x80, 0x250, 0x600, 0x3000, 0x10000, 0x20000, 0x110000}
	for {
		r := rune(a.IntN(limits[a.IntN(len(limits))]))
		if r < 0xd800 || r > 0xdfff {
			return r
		}
	}
}
