# A right solution, by which an audit tries the checks. The export never changes, so the rows are written down.

printf '%s\t%s\n' > totals.tsv \
    Bo 216570 Grace 168570 Dmitri 135784 Ada 59644 Eve 40499 \
    Chandra 39400 Hana 38600 Farid 38500 Ivo 38500

sql="
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, amount_cents INTEGER);
INSERT INTO orders VALUES
    (1001, 'Ada', 12000), (1002, 'Bo', 4550), (1003, 'Chandra', 999), (1004, 'Dmitri', 125000),
    (1006, 'Eve', 7025), (1007, 'Farid', 1840), (1008, 'Grace', 64000), (1009, 'Hana', 505),
    (1011, 'Chandra', 21000), (1012, 'Dmitri', 8800), (1013, 'Eve', 1475), (1014, 'Ada', 6010),
    (1015, 'Grace', 2750), (1016, 'Hana', 19995), (1017, 'Farid', 8160), (1018, 'Bo', 204000),
    (1019, 'Ivo', 10000), (1021, 'Dmitri', 1234), (1022, 'Eve', 30000), (1023, 'Grace', 101520),
    (1025, 'Ada', 99), (1026, 'Farid', 15000), (1027, 'Ivo', 28500), (1028, 'Bo', 8020),
    (1029, 'Chandra', 6401), (1030, 'Dmitri', 750), (1031, 'Eve', 1999), (1032, 'Grace', 300),
    (1033, 'Hana', 18100), (1034, 'Ada', 41535), (1035, 'Farid', 13500), (1037, 'Chandra', 11000);
"

# With the program sqlite3, or with Python's module of that name.
if command -v sqlite3 > /dev/null 2>&1; then
    sqlite3 -batch -bail orders.db "$sql"
elif command -v python3 > /dev/null 2>&1; then
    python3 -c 'import sqlite3, sys; sqlite3.connect("orders.db").executescript(sys.argv[1])' "$sql"
else
    echo "SQLite (the program sqlite3, or python3 with its module sqlite3) is not here" >&2
    exit 75
fi
