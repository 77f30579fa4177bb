package lexicon

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScan(t *testing.T) {
	for text, want := range map[string]string{
		"Pick one, needs 1":             "needs",
		"sobald 2 fertig ist":           "sobald",
		"does not depend on 2":          "does not depend on",
		"1の後":                           "の後",
		"在步骤1之后":                        "在",
		"1. adımdan sonra":              "sonra",
		"после шага 1":                  "после",
		"setzt Schritt 1 voraus":        "setzt",
		"hängt von 2 und 3 ab":          "hängt von",
		"depends\u00a0on T1":            "depends on",
		"the DEPENDS ON phrase is long": "depends on",
	} {
		var got []string
		for _, tok := range Scan(text) {
			if tok.Kinds&Relations != 0 {
				got = append(got, tok.Phrase)
			}
		}
		require.Contains(t, got, want, text)
	}
}

func TestNumber(t *testing.T) {
	for text, want := range map[string]int{
		"12": 12, "three": 3, "Third": 3, "dritte": 3, "第三": 3, "十二": 12, "②": 2, "３": 3, "٣": 3, "१२": 12, "IV": 4,
		"1️⃣": 1, "третьего": 3, "二十": 20,
	} {
		n, ok := Number(text)
		require.True(t, ok, text)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "mix", "T1", "a"} {
		_, ok := Number(text)
		require.False(t, ok, text)
	}
}

func TestField(t *testing.T) {
	for name, want := range map[string]Role{
		"depends_on": Requires, "dependsOn": Requires, "Depends On:": Requires, "Vorgänger": Requires, "依存": Requires,
		"ID": ID, "owner": Owner, "Task": Title, "nextStep": Next,
	} {
		got, ok := Field(name)
		require.True(t, ok, name)
		require.Equal(t, want, got, name)
	}
}

func TestIs(t *testing.T) {
	require.True(t, Is(Steps, "Schritte"))
	require.True(t, Is(None, "keine"))
	require.False(t, Is(Steps, "dog"))
	require.True(t, Has(Plan, "Here is the workflow for you"))
}

func TestLeadingBlock(t *testing.T) {
	for text, want := range map[string]Block{
		"end parallel": BlockEnd, "for each row": BlockLoop, "wenn x": BlockIf, "等待全部完成": BlockJoin, "с": 0, "endless": 0,
	} {
		got, n := LeadingBlock(text)
		require.Equal(t, want, got&(BlockEnd|BlockLoop|BlockIf|BlockJoin), text)
		require.Equal(t, want != 0, n > 0, text)
	}
	require.True(t, HasBlock(BlockParallel, "выполнить одновременно"))
	require.False(t, HasBlock(BlockParallel, "один за другим"))
}

func TestLanguage(t *testing.T) {
	for text, want := range map[string]Lang{
		"the house is on the hill and it is for you": "en", "das Haus ist auf dem Hügel und wird nicht verkauft": "de",
		"la maison est dans le village avec les autres": "fr", "дом стоит на холме, и мы его не продаём": "ru",
		"家は丘の上にあります": "ja", "房子在山上": "zh", "집은 언덕 위에 있다": "ko", "Boil": "",
	} {
		require.Equal(t, want, Language(text), text)
	}
}

func FuzzScan(f *testing.F) {
	f.Add("needs 1, sobald 2 fertig ist, 2の後 İ ①")
	f.Fuzz(func(t *testing.T, text string) {
		end := 0
		for _, tok := range Scan(text) {
			require.True(t, end <= tok.Off && tok.Off < tok.End && tok.End <= len(text))
			end = tok.End
		}
	})
}

func TestBase(t *testing.T) {
	for _, words := range []string{
		"en saw sawing sawed saws", "en cut cutting cuts", "en dry dried drying dries", "en bake baked baking", "en fill filling filled",
		"de sägen gesägt säge", "de prüfen prüfung geprüft", "es cortar cortado corte", "fr poser posé pose", "ar تحليل التحليل", "id cetak dicetak mencetak pencetakan",
		"pl ciąć ciąć", "zh 切割 切割",
	} {
		f := strings.Fields(words)
		for _, w := range f[2:] {
			require.Equal(t, Base(Lang(f[0]), f[1]), Base(Lang(f[0]), w), words)
		}
	}
	require.NotEqual(t, Base("en", "plan"), Base("en", "plant"))
}
