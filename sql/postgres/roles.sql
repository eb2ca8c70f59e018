-- Roles, for who installs; no part of a migration. Run it once per database, after `pawl init` and
-- as the role that ran that: psql -f roles.sql DATABASE. It may be run again. Who may not create
-- roles has them created first; then this only grants.
--
--     pawl_producer   may call pawl.enqueue, and nothing else: sees no table and no view
--     pawl_worker     what `pawl work` and the other verbs need, but not init; and what a handler
--                     with a connection of its own calls
--     pawl_reader     the views, with the args and results of all jobs
--
-- They cannot log in: GRANT pawl_producer TO shop_app. Roles are of the whole server, the grants of
-- this database only.
DO $$
DECLARE
    who name;
BEGIN
    FOREACH who IN ARRAY ARRAY['pawl_producer', 'pawl_worker', 'pawl_reader'] LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = who);
        BEGIN
            EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', who);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- by somebody else, in another database, at the same moment
        END;
    END LOOP;
END $$;
GRANT USAGE ON SCHEMA pawl TO pawl_producer, pawl_worker, pawl_reader;
DO 'BEGIN PERFORM pawl.x_grant(); END';
