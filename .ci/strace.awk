# Checks, in the strace output of one node, that the journal was synced before what was said because of it.
#
# Called with -v api=PORT -v peer=PORT. Needs strace -f -yy -xx of recvfrom, read, readv, sendto, write, writev, sendmsg,
# pwrite64 and fdatasync. Lines come in the order in which the calls began and ended, so line numbers stand for time.
#
# Three rules. Between the receipt of
#   append: a Raft append that carries a lock named sync-order-..., and its acknowledgement to the leader;
#   vote:   a request for a vote, and the answer that grants it;
#   200:    a client's request about a lock named sync-order-two-..., and its HTTP 200
# the journal was written, then a sync of it began, and that sync returned 0 before the answer was begun.
# (In a cluster of two the leader's own sync is needed for a commit; in one of three two followers are enough.)
#
# A new leader sends again what a follower has already. So of what was logged in the cluster of three, only appends from
# before the first request for a vote count.
#
# A peer connection carries frames: length (4 bytes), version (1), body. Its first frame is the hello. A Raft call is
# (number, kind, ...): 0 append, 1 vote, 2 would-be vote; its answer is (number, 0 for ok, kind, ...).

BEGIN {
    for (i = 0; i < 16; i++) nibble[substr("0123456789abcdef", i + 1, 1)] = i
    name_any = hex("sync-order-"); name_two = hex("sync-order-two-")
    post = hex("POST /v1/locks/"); ok200 = hex("HTTP/1.1 200")
    segment = hex("/log/journal/", "\\x")
}

{ thread = $1; text = $0; sub(/^[0-9]+ +/, "", text) }

/ <unfinished \.\.\.>$/ {
    sub(/ *<unfinished \.\.\.>$/, "", text)
    begun[thread] = text; begin(thread, text); next
}
text ~ /^<\.\.\. [a-z0-9_]+ resumed>/ {
    sub(/^<\.\.\. [a-z0-9_]+ resumed>/, "", text)
    if (thread in begun) { end(thread, begun[thread] text); delete begun[thread] }
    next
}
text ~ /^[a-z0-9_]+\(/ { begin(thread, text); end(thread, text) }

# A call begins: what is written may be on its way from here on.
function begin(thread, text) {
    if (on_journal("fdatasync", text)) covers[thread] = written
    else if (text ~ /^(sendto|write|writev|sendmsg)\(/) said(connection(text), bytes(text))
}

# A call has ended: what it did is done.
function end(thread, text) {
    if (on_journal("fdatasync", text)) { if (text ~ / = 0$/ && covers[thread] > synced) synced = covers[thread] }
    else if (on_journal("pwrite64", text) && !is_mark(text)) written = NR
    else if (text ~ /^(recvfrom|read|readv)\(/ && text ~ / = [1-9][0-9]*$/) heard(connection(text), bytes(text))
}

function on_journal(call, text) { return index(text, call "(") == 1 && index(substr(text, 1, index(text, ">")), segment) }

# The first page of a segment alone says how far the journal was durable before, and carries nothing itself.
function is_mark(text) { return text ~ /, 4096, 0\) = / }

function heard(conn, data) {
    if (index(conn, ":" peer "->")) {
        if (!(conn in greeted)) { greeted[conn] = 1; return }
    } else if (!index(conn, ":" api "->")) {
        return
    } else if (index(data, post) == 1) {
        delete asked[conn]
    }
    asked[conn] = asked[conn] data
    asked_at[conn] = NR
}

function said(conn, data) {
    if (!(conn in asked_at)) return
    if (index(conn, ":" api "->")) {
        if (index(data, ok200) == 1 && index(asked[conn], name_two)) judge("200", asked_at[conn])
    } else if (raft_call(asked[conn]) == 0) {
        if (is_new(asked[conn]) && is_append_ack(data)) judge("append", asked_at[conn])
    } else if (raft_call(asked[conn]) == 1) {
        elections = 1
        if (is_granted_vote(data)) judge("vote", asked_at[conn])
    }
    delete asked_at[conn]; delete asked[conn]
}

function judge(rule, received) {
    checked[rule]++
    if (synced > received) return
    broken[rule]++
    if (!quiet) printf "line %d: %s answered without a sync since line %d\n", NR, rule, received
}

# The kind of a Raft call; -1 for what is none (forwarded requests have their kind first, and 0 is no call's number).
function raft_call(call) {
    at = 11
    return number(call) == 0 ? -1 : number(call)
}

function is_new(call) { return index(call, name_two) || (index(call, name_any) && !elections) }

# Moves behind (number, 0 for ok, kind) if the answer begins with them.
function is_answer(answer, kind) {
    at = 11
    number(answer)
    return number(answer) == 0 && number(answer) == kind
}

# Success, in full or for the first of the entries.
function is_append_ack(answer) { return is_answer(answer, 0) && number(answer) <= 1 }

# After the vote (term, voted for or not, committed) comes whether it was granted.
function is_granted_vote(answer) {
    if (!is_answer(answer, 1)) return 0
    number(answer)
    if (number(answer) == 1) number(answer)
    number(answer)
    return number(answer) == 1
}

# The number at hex position `at`, which moves behind it: one byte, or 251, 252, 253 and 2, 4, 8 bytes.
function number(data,    first, size, value, factor) {
    first = byte(data, at); at += 2
    size = first == 251 ? 2 : first == 252 ? 4 : first == 253 ? 8 : 0
    if (!size) return first
    for (factor = 1; size > 0; size--) { value += byte(data, at) * factor; factor *= 256; at += 2 }
    return value
}

function byte(data, at) { return nibble[substr(data, at, 1)] * 16 + nibble[substr(data, at + 1, 1)] }

# The connection of a call: the text between the first < and > of its descriptor, -> inside included.
function connection(text,    from) {
    from = index(text, "<TCP:[")
    return from && from < 16 ? substr(text, from, index(text, "]>") - from) : ""
}

# All bytes that a call shows, as hex digits.
function bytes(text,    all, rest) {
    rest = text
    while (match(rest, /"(\\x[0-9a-f][0-9a-f])*"/)) {
        all = all substr(rest, RSTART + 1, RLENGTH - 2)
        rest = substr(rest, RSTART + RLENGTH)
    }
    gsub(/\\x/, "", all)
    return all
}

# The hex digits of a text, each pair behind a mark.
function hex(ascii, mark,    i, all) {
    for (i = 1; i <= length(ascii); i++) all = all mark sprintf("%02x", code(substr(ascii, i, 1)))
    return all
}

function code(letter,    i) {
    for (i = 32; i < 127; i++) if (sprintf("%c", i) == letter) return i
}

END {
    printf "append %d %d vote %d %d ", checked["append"], broken["append"], checked["vote"], broken["vote"]
    printf "200 %d %d\n", checked["200"], broken["200"]
}
