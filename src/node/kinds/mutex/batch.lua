-- BATCH (protocol §3, §5): many operations about locks, one after the other, in one step.
-- KEYS     open, waiting, the lock of each operation, c0, c1
-- ARGV     a letter for each operation, what each one needs, guard
--            ACQUIRE: A entry, ttl ms, p µs · RAISE: T entry, or entry and seq, token · EXTEND: E entry, ttl ms
--            RELEASE: R entry, p µs · JOIN: J, or L where only as the last, entry, ttl ms, p µs, place
--            YIELD: Y entry, p µs, place
--            A place is: seq, ticket, S ms, lock-delay ms, life ms, claim ms, channel
-- RETURNS  how many they are, where all went as asked: A, J and L gave p, T raised to its token, E and R found their
--          own, Y was done. Else an array. In the place of each: what its own script returns, or the text of its error
--            J {counter, seq}, where it is ours; {rank, PTTL, whose or nil, 1 where that is only reserved}
--            L the same; {PTTL, counter, whose or nil, last ticket, 1}, where it would not be the last
--            Y 1
-- The locks and counters are read once. What one operation writes is written here too, for those behind it.
-- Every write is a pcall: what fails for one operation is its own error, and spoils no other.
-- It is six files, one after the other: this one; what is known; what is read; who is told, and the line; each operation. What travels
-- alone is a script of its own.
local n, c0, c1 = #KEYS - 4, KEYS[#KEYS - 1], KEYS[#KEYS]
-- A guard that is wrong may say anything. Then no counter is made.
local max_ttl = string.match(ARGV[#ARGV], '^%d+') or 0
