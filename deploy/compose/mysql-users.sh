# Run once by the image's set-up, when the volume is new. The accounts of
# docs/security.md; passwords come from the environment.
# shellcheck shell=bash
docker_process_sql <<SQL
CREATE USER 'dibs_migrate'@'%' IDENTIFIED BY '$MYSQL_MIGRATE_PASSWORD';
CREATE USER 'dibs_run'@'%' IDENTIFIED BY '$MYSQL_PASSWORD';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP, REFERENCES, CREATE VIEW, SHOW VIEW ON dibs.* TO 'dibs_migrate'@'%';
SQL
