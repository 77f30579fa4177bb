package telegram

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// Update is something that happened, as far as bots here take part in it. Chat is 0 if it is no message
// with a text that a person wrote.
type Update struct {
	ID int64
	// Chat is where it was written, and MessageID what Telegram calls the message there.
	Chat, MessageID int64
	// Text is what was written.
	Text string
	// Command is the word behind the slash if the text begins with a command, without the name of the
	// bot; and Rest is the text behind it.
	Command, Rest string
	User          User
}

// User is a person who writes.
type User struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

// errUpdate is the error of what is no update.
var errUpdate = errors.New("an update is not of the form of the Bot API")

// maxName bounds the name of a user in bytes.
const maxName = 256

type message struct {
	ID   int64  `json:"message_id"`
	Text string `json:"text"`
	Chat struct {
		ID int64 `json:"id"`
	} `json:"chat"`
	From struct {
		ID        int64  `json:"id"`
		Bot       bool   `json:"is_bot"`
		FirstName string `json:"first_name"`
		LastName  string `json:"last_name"`
		Username  string `json:"username"`
	} `json:"from"`
}

// ReadUpdate reads one update. What is no message of a person comes without a chat, so that it can be
// passed over; so does a message that is larger than MaxUpdate or of another form, which would else
// come again and again. The error is that of an update without an id.
func ReadUpdate(text []byte) (Update, error) {
	var u struct {
		ID      int64           `json:"update_id"`
		Message json.RawMessage `json:"message"`
	}
	if err := json.Unmarshal(text, &u); err != nil || u.ID <= 0 {
		return Update{}, errUpdate
	}
	out := Update{ID: u.ID}
	var m message
	if len(u.Message) == 0 || len(u.Message) > MaxUpdate || json.Unmarshal(u.Message, &m) != nil {
		return out, nil
	}
	said := clean(m.Text)
	if said == "" || m.From.Bot || m.From.ID == 0 || m.Chat.ID == 0 {
		return out, nil
	}
	out.Chat, out.MessageID, out.Text = m.Chat.ID, m.ID, said
	out.User = User{ID: m.From.ID, Name: clean(m.From.FirstName + " " + m.From.LastName)}
	if out.User.Name == "" {
		out.User.Name = clean(m.From.Username)
	}
	out.User.Name = clip(out.User.Name, maxName)
	out.Command, out.Rest = command(said)
	return out, nil
}

// clean is a text without what no value may hold.
func clean(text string) string {
	return strings.TrimSpace(strings.ReplaceAll(text, "\x00", ""))
}

// command splits "/ask@a_bot when" into "ask" and "when".
func command(text string) (name, rest string) {
	text, ok := strings.CutPrefix(text, "/")
	if !ok {
		return "", ""
	}
	end := strings.IndexFunc(text, func(r rune) bool { return r == ' ' || r == '\n' || r == '\t' })
	if end < 0 {
		end = len(text)
	}
	name, _, _ = strings.Cut(text[:end], "@")
	return strings.ToLower(name), strings.TrimSpace(text[end:])
}

// clip cuts a text at the border of a character.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
