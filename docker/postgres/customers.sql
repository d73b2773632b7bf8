CREATE TABLE customers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    city TEXT
);
-- So that the record of an UPDATE or a DELETE has all columns of the row.
ALTER TABLE customers REPLICA IDENTITY FULL;
INSERT INTO customers VALUES (1, 'Ada', 'London'), (2, 'Emmy', 'Erlangen'), (3, 'Sofia', 'Moscow');
