"""Commands on whole tables: VACUUM, RESTORE, CLONE, CONVERT, GENERATE, DESCRIBE."""
